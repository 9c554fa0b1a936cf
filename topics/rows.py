"""How rows of the table are stored, and the one kind of row that sessions and jobs share: where a piece of audio is."""

from __future__ import annotations

from typing import Final

import msgspec


class AudioRow(msgspec.Struct, frozen=True, array_like=True):
    """Where a chunk or part is: on the command topic, in the partition of its session or job."""

    offset: int
    length: int
    #: XXH3-128 of the audio bytes.
    digest: bytes


encode: Final = msgspec.msgpack.Encoder().encode

_audio: Final = msgspec.msgpack.Decoder(AudioRow)


def audio(value: bytes | None) -> AudioRow | None:
    """Read an audio row, None where there is none."""
    return None if value is None else _audio.decode(value)
