"""Audio files: their content type, told by the first bytes, and their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.client._errors import UnknownFormat
from app.client._models import Opening, Sensitivity

#: Bytes of a file session's chunk, as the interface advises.
CHUNK: Final = 1024 * 1024
#: Bytes that `content_type` wants to see.
HEAD: Final = 12

_AT_START: Final = {
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
    b"ID3": "audio/mp3",
}
_CONTAINERS: Final = {
    (b"RIFF", b"WAVE"): "audio/wav",
    (b"RF64", b"WAVE"): "audio/rf64",
    (b"FORM", b"AIFF"): "audio/aiff",
    (b"FORM", b"AIFC"): "audio/aiff",
}


def content_type(head: bytes) -> str | None:
    """Return the content type of a file that begins with `head`, None when it is no format the service decodes."""
    for magic, kind in _AT_START.items():
        if head.startswith(magic):
            return kind
    container = _CONTAINERS.get((head[:4], head[8:12]))
    if container is not None:
        return container
    return "audio/mp3" if _mpeg_frame(head) else None


def opening(path: Path, sensitivity: Sensitivity) -> Opening:
    """Return what a session for a file is opened with.

    Raises:
        UnknownFormat, OSError.
    """
    with path.open("rb") as file:
        kind = content_type(file.read(HEAD))
    if kind is None:
        raise UnknownFormat("not a WAV, MP3, Ogg, FLAC or AIFF file")
    return Opening("file", kind, sensitivity, path.stat().st_size, path.name)


def chunks(path: Path) -> Iterator[bytes]:
    """Read a file in the chunks of a file session."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _mpeg_frame(head: bytes) -> bool:
    """Tell whether an MPEG audio frame header of layer III stands here: eleven set bits, then version and layer."""
    return len(head) >= 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2
