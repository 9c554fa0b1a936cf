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
#: Size of the header of an ID3 tag; and how many tags are skipped.
_ID3_BYTES: Final = 10
_MOST_TAGS: Final = 4
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


def detect_file(source: Source) -> Container | None:
    """Return the container of a file, or None if unknown, and rewind it. A tag may precede FLAC."""
    detected = detect(source.read(HEAD))
    if detected == "mp3" and detect(skip_tags(source, HEAD)[1]) == "flac":
        detected = "flac"
    source.seek(0)
    return detected


def skip_tags(source: Source, size: int) -> tuple[int, bytes]:
    """Return where the audio after ID3 tags begins, and its first `size` bytes, at least 10."""
    source.seek(0)
    start, head = 0, source.read(size)
    for _ in range(_MOST_TAGS):
        if head[:3] == b"ID3" and len(head) >= _ID3_BYTES and max(head[6:10]) < 0x80:
            start += _ID3_BYTES + sum(byte << 7 * (3 - place) for place, byte in enumerate(head[6:10]))
            source.seek(start)
            head = source.read(size)
    return start, head


def check_declared(source: Source, media: Media) -> Container:
    """Check that `source` begins as declared, rewind it and return its container.

    Raises:
        AudioError: the source is empty, or its container is unknown or not the declared one.
    """
    detected = detect_file(source)
    if detected is None and not source.read(1):
        raise AudioError("the data holds no audio")
    if detected is None:
        raise AudioError(f"declared {media.declared}, but the data is not a supported audio file")
    if media.container not in ("any", detected):
        raise AudioError(f"declared {media.declared}, but the data is {NAMES[detected]}")
    return detected
