"""Reads the audio of sessions and jobs back from the log, by their rows."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import xxhash

from streams.log import RecordReader
from topics.catalog import TopicPartition
from topics.errors import AudioError, RecordError
from topics.folding import AudioRow


async def read_log(
    log: RecordReader, tp: TopicPartition, rows: Sequence[AudioRow], audio_of: Callable[[bytes], bytes | None]
) -> AsyncGenerator[bytes, None]:
    """Yield the audio of rows in order; `audio_of` extracts it from a record, or returns None.

    Raises:
        AudioError: the record is gone, or its bytes have changed.
    """
    # Close at once even if a record is damaged, because the reader may hold a lock.
    async with aclosing(log.values(tp, [row.offset for row in rows])) as values:
        index = 0
        async for value in values:
            yield checked_audio(rows[index], value, audio_of)
            index += 1


def checked_audio(row: AudioRow, value: bytes | None, audio_of: Callable[[bytes], bytes | None]) -> bytes:
    """Return the audio of a record; raise AudioError if there is none, or if its bytes have changed."""
    if value is None:
        raise AudioError("the audio is no longer in the log: its retention time is over, or the log was damaged")
    try:
        data = audio_of(value)
    except RecordError as error:
        raise AudioError(f"the audio cannot be read from the log: {error}") from error
    if data is None or xxhash.xxh3_128_digest(data) != row.digest:
        raise AudioError("the audio was damaged in the log")
    return data
