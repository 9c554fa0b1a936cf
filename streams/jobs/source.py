"""Reads a job's audio from the log, part by part."""

from collections.abc import AsyncGenerator, Sequence

from streams.folding.logged_audio import read_log
from streams.log import RecordReader
from topics import record_codec
from topics.jobs.records import Part
from topics.rows import AudioRow


class PartSource:
    """Reads parts from the log by their rows. Loop only."""

    def __init__(self, log: RecordReader) -> None:
        self.log = log

    def read(self, partition: int, rows: Sequence[AudioRow]) -> AsyncGenerator[bytes, None]:
        return read_log(self.log, partition, rows, _audio)


def _audio(value: bytes) -> bytes | None:
    command = record_codec.decode_job_command(value)
    return command.data if isinstance(command, Part) else None
