"""Recognises a container from its first bytes."""

from typing import Final, Protocol

from topics.errors import AudioError
from topics.media import Container, Media

#: Bytes `detect` needs.
HEAD: Final = 12
NAMES: Final[dict[Container, str]] = {
    "wav": "WAV",
    "mp3": "MP3",
    "ogg": "Ogg",
    "flac": "FLAC",
    "aiff": "AIFF",
    "au": "AU",
    "caf": "CAF",
    "mp4": "MP4 (M4A, MOV, 3GP)",
    "matroska": "Matroska (MKA, WebM)",
    "asf": "ASF (WMA)",
    "aac": "AAC",
    "ac3": "AC-3",
    "wavpack": "WavPack",
}
_BEGINNINGS: Final[dict[bytes, Container]] = {
    b"OggS": "ogg",
    b"fLaC": "flac",
    b".snd": "au",
    b"caff": "caf",
    b"\x1a\x45\xdf\xa3": "matroska",
    b"\x30\x26\xb2\x75": "asf",
    b"wvpk": "wavpack",
}


def detect(head: bytes) -> Container | None:
    """Return the container whose file begins with `head`; None if unknown."""
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if head[:4] in _BEGINNINGS:
        return _BEGINNINGS[head[:4]]
    # The first box of a QuickTime file; old files may have no `ftyp`.
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return "mp4"
    if head[:2] == b"\x0b\x77":
        return "ac3"
    # Eleven bits of sync, then a known MPEG version and layer III.
    if head[:3] == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[1] & 0x18 != 0x08):
        return "mp3"
    # Twelve bits of sync and layer 0, which MPEG audio does not use.
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "aac"
    return None


class Source(Protocol):
    """What this package needs of a binary file."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


def check_declared(source: Source, media: Media) -> Container:
    """Check that `source` begins as declared, rewind it and return its container.

    Raises:
        AudioError: the source is empty, or its container is unknown or not the declared one.
    """
    head = source.read(HEAD)
    source.seek(0)
    if not head:
        raise AudioError("the data holds no audio")
    detected = detect(head)
    if detected is None:
        raise AudioError(f"declared {media.declared}, but the data is not a supported audio file")
    if media.container not in ("any", detected):
        raise AudioError(f"declared {media.declared}, but the data is {NAMES[detected]}")
    return detected
