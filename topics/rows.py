"""Encodes and decodes rows (one version byte, then msgpack); the rows of audio references and receipts."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from topics.errors import RecordError
from topics.folding import AudioRow, Receipt

T = TypeVar("T")

VERSION: Final = b"\x01"

_encoder: Final = msgspec.msgpack.Encoder()


def encode(row: Any) -> bytes:
    return VERSION + _encoder.encode(row)


class Decoder(Generic[T]):
    """Decodes rows or records of one type."""

    def __init__(self, kind: Any, noun: str = "row") -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._noun = noun

    def decode(self, value: bytes | None) -> T:
        """Decode a value; raise RecordError if there is none, it has another version, or it is not of this type."""
        found = self.optional(value)
        if found is None:
            raise self._empty()
        return found

    def optional(self, value: bytes | None) -> T | None:
        """Return None for None, else the same as `decode`."""
        if value is None:
            return None
        try:
            if value[:1] == VERSION:
                return self._decoder.decode(memoryview(value)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RecordError(f"not a {self._noun}: {error}") from error
        if not value:
            raise self._empty()
        raise RecordError(f"{self._noun} version {value[0]} is not known (this is version {VERSION[0]})")

    def _empty(self) -> RecordError:
        return RecordError(f"not a {self._noun}: it has no value")


audio: Final = Decoder[AudioRow](AudioRow).optional
receipt: Final = Decoder[Receipt](Receipt).optional
