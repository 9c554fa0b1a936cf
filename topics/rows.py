"""Encodes and decodes rows (one version byte, then msgpack); the rows of audio references and receipts."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from topics.errors import RecordError
from topics.folding import Receipt

T = TypeVar("T")

VERSION: Final = b"\x01"


class AudioRow(msgspec.Struct, frozen=True, array_like=True):
    """A reference to a chunk or part in the command topic, in the partition of its session or job."""

    offset: int
    length: int
    #: XXH3-128 of the audio bytes.
    digest: bytes


_encoder: Final = msgspec.msgpack.Encoder()


def encode(row: Any) -> bytes:
    return VERSION + _encoder.encode(row)


class RowDecoder(Generic[T]):
    """Decodes rows of one type."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def decode(self, value: bytes | None) -> T | None:
        """Decode a row; return None for None. Raise RecordError for another version, or no row of this type."""
        if value is None:
            return None
        try:
            if value[:1] == VERSION:
                return self._decoder.decode(memoryview(value)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RecordError(f"not a row: {error}") from error
        if not value:
            raise RecordError("not a row: it is empty")
        raise RecordError(f"row version {value[0]} is not known (this is version {VERSION[0]})")


audio: Final = RowDecoder[AudioRow](AudioRow).decode
receipt: Final = RowDecoder[Receipt](Receipt).decode
