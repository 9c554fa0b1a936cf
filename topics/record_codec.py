"""Records to bytes and back: one version byte, then msgpack."""

from typing import Final, TypeVar

import msgspec

from topics.errors import RecordError
from topics.jobs.records import JobCommand, JobResult
from topics.records import Parked, Record
from topics.sessions.records import SessionCommand, SessionResult

T = TypeVar("T")

VERSION: Final = b"\x01"

_encoder: Final = msgspec.msgpack.Encoder()
_commands: Final = msgspec.msgpack.Decoder(SessionCommand)
_results: Final = msgspec.msgpack.Decoder(SessionResult)
_job_commands: Final = msgspec.msgpack.Decoder(JobCommand)
_job_results: Final = msgspec.msgpack.Decoder(JobResult)
_parked: Final = msgspec.msgpack.Decoder(Parked)


def encode(record: Record) -> bytes:
    return VERSION + _encoder.encode(record)


def decode_command(value: bytes | None) -> SessionCommand:
    """Read a record of the command topic.

    Raises:
        RecordError: no value, another version, or not a command.
    """
    command: SessionCommand = _decode(_commands, value)
    return command


def decode_result(value: bytes | None) -> SessionResult:
    """Read a record of the result topic.

    Raises:
        RecordError: no value, another version, or not a result.
    """
    result: SessionResult = _decode(_results, value)
    return result


def decode_job_command(value: bytes | None) -> JobCommand:
    """Read a record of the job command topic.

    Raises:
        RecordError: no value, another version, or not a command of a job.
    """
    command: JobCommand = _decode(_job_commands, value)
    return command


def decode_job_result(value: bytes | None) -> JobResult:
    """Read a record of the job result topic.

    Raises:
        RecordError: no value, another version, or not a result of a job.
    """
    result: JobResult = _decode(_job_results, value)
    return result


def decode_parked(value: bytes | None) -> Parked:
    """Read a record of a dead-letter topic.

    Raises:
        RecordError: no value, another version, or not a parked record.
    """
    parked: Parked = _decode(_parked, value)
    return parked


def _decode(decoder: msgspec.msgpack.Decoder[T], value: bytes | None) -> T:
    if not value:
        raise RecordError("the record has no value")
    if value[:1] != VERSION:
        raise RecordError(f"record version {value[0]} is not known (this is version {VERSION[0]})")
    try:
        return decoder.decode(memoryview(value)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"not a record: {error}") from error
