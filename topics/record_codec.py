"""Encodes and decodes records: one version byte, then msgpack."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from topics.errors import RecordError
from topics.jobs.records import JobCommand, JobResult
from topics.records import Parked, Record
from topics.sessions.records import SessionCommand, SessionResult

T = TypeVar("T")

VERSION: Final = b"\x01"

_encoder: Final = msgspec.msgpack.Encoder()


def encode(record: Record) -> bytes:
    return VERSION + _encoder.encode(record)


class RecordDecoder(Generic[T]):
    """Decodes the records of one topic."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def decode(self, value: bytes | None) -> T:
        """Decode a record; raise RecordError if there is no value, another version, or no record of this topic."""
        if not value:
            raise RecordError("the record has no value")
        if value[:1] != VERSION:
            raise RecordError(f"record version {value[0]} is not known (this is version {VERSION[0]})")
        try:
            return self._decoder.decode(memoryview(value)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RecordError(f"not a record: {error}") from error


decode_command: Final = RecordDecoder[SessionCommand](SessionCommand).decode
decode_result: Final = RecordDecoder[SessionResult](SessionResult).decode
decode_job_command: Final = RecordDecoder[JobCommand](JobCommand).decode
decode_job_result: Final = RecordDecoder[JobResult](JobResult).decode
decode_parked: Final = RecordDecoder[Parked](Parked).decode
