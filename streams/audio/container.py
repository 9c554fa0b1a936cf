"""Recognises a container by its first bytes."""

from __future__ import annotations

from typing import Final, Protocol

from topics.errors import AudioError
from topics.media import Container, Media

#: Bytes that `detect` needs.
HEAD: Final = 12
NAMES: Final[dict[Container, str]] = {"wav": "WAV", "mp3": "MP3", "ogg": "Ogg", "flac": "FLAC", "aiff": "AIFF"}


def detect(head: bytes) -> Container | None:
    """Return the container that begins with `head`; None for an unknown one."""
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if head[:4] == b"OggS":
        return "ogg"
    if head[:4] == b"fLaC":
        return "flac"
    # Eleven bits of sync, then a known MPEG version and layer III.
    if head[:3] == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[1] & 0x18 != 0x08):
        return "mp3"
    return None


class Source(Protocol):
    """A file."""

    def read(self, size: int, /) -> bytes:
        """Read like a file."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Seek like a file."""
        ...


def check_declared(source: Source, media: Media) -> None:
    """Compare the beginning of `source` with the declaration; the position is 0 again afterwards.

    Raises:
        AudioError: there are no bytes, an unknown container, or another than was declared.
    """
    head = source.read(HEAD)
    source.seek(0)
    if not head:
        raise AudioError("the data holds no audio")
    detected = detect(head)
    if detected is None:
        raise AudioError(f"declared {media.declared}, but the data is no audio file that is supported")
    if media.container not in ("any", detected):
        raise AudioError(f"declared {media.declared}, but the data is {NAMES[detected]}")
