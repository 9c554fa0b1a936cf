"""Reads the length that a file claims, to detect truncation; libsndfile does not check it.

Formats: RIFF, EBU Tech 3306 (RF64), and the page headers of RFC 3533 (Ogg).
"""

import io
import struct
from typing import Final

from streams.audio.container import Source

#: No real recording has more chunks before its samples.
MAX_CHUNKS: Final = 64
_CHUNK: Final = struct.Struct("<4sI")
#: PCM, float, and the extensible format: their frames have a fixed size.
_KINDS: Final = (1, 3, 0xFFFE)
#: Streaming writers put values from here on when they do not know the length.
_UNKNOWN_BYTES: Final = 0x7FFF0000
_PAGE_BYTES: Final = 65_307
_PAGE_HEADER: Final = 27
_LAST_PAGE: Final = 4


def wav_frames(source: Source) -> int | None:
    """Return the number of frames that a WAV header claims; None if it claims none."""
    source.seek(0)
    at, frame, long = len(source.read(12)), 0, None
    for _ in range(MAX_CHUNKS):
        source.seek(at)
        header = source.read(_CHUNK.size)
        if len(header) < _CHUNK.size:
            return None
        name, length = _CHUNK.unpack(header)
        if name == b"ds64":
            long = int.from_bytes(source.read(16)[8:], "little")
        elif name == b"fmt ":
            fields = source.read(16)
            frame = int.from_bytes(fields[12:14], "little") if int.from_bytes(fields[:2], "little") in _KINDS else 0
        elif name == b"data":
            known = long if long is not None else length if length < _UNKNOWN_BYTES else None
            return known // frame if known and frame else None
        at += _CHUNK.size + length + length % 2
    return None


def ogg_is_unfinished(source: Source) -> bool:
    """Return whether an Ogg file lacks a complete page flagged as the last; padding may follow that page."""
    tail = b""
    for end in range(source.seek(0, io.SEEK_END), 0, -_PAGE_BYTES):
        source.seek(max(0, end - 2 * _PAGE_BYTES))
        tail = source.read(2 * _PAGE_BYTES)
        if b"OggS" in tail:
            break
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) < _PAGE_HEADER or not page[5] & _LAST_PAGE:
        return True
    segments = page[_PAGE_HEADER : _PAGE_HEADER + page[26]]
    return len(page) < _PAGE_HEADER + page[26] + sum(segments)
