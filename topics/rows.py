"""How rows of the table are encoded, and the rows of chunks and parts: references to their audio, and receipts."""

from __future__ import annotations

from typing import Final

import msgspec

from topics.folding import Receipt


class AudioRow(msgspec.Struct, frozen=True, array_like=True):
    """Where a chunk or part is: on the command topic, in the partition of its session or job."""

    offset: int
    length: int
    #: XXH3-128 of the audio bytes.
    digest: bytes


encode: Final = msgspec.msgpack.Encoder().encode

_audio: Final = msgspec.msgpack.Decoder(AudioRow)
_receipt: Final = msgspec.msgpack.Decoder(Receipt)


def audio(value: bytes | None) -> AudioRow | None:
    """Read an audio row, None where there is none."""
    return None if value is None else _audio.decode(value)


def receipt(value: bytes | None) -> Receipt | None:
    """Read a receipt row, None where there is none."""
    return None if value is None else _receipt.decode(value)
