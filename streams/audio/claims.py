"""Reads the length that a file claims, to detect truncation; libsndfile does not check it.

Formats: RIFF, EBU Tech 3306 (RF64), AIFF-C, AU, CAF, and the page headers of RFC 3533 (Ogg).
"""

import io
import struct
from collections.abc import Iterator
from typing import Final

from streams.audio.container import Source

#: No real recording has more chunks before its samples.
MAX_CHUNKS: Final = 64
_CHUNK: Final = struct.Struct("<4sI")
_AIFF_CHUNK: Final = struct.Struct(">4sI")
_CAF_CHUNK: Final = struct.Struct(">4sq")
#: PCM, float, A-law, mu-law, and the extensible format: their frames have a fixed size.
_KINDS: Final = (1, 3, 6, 7, 0xFFFE)
#: Streaming writers put values from here on when they do not know the length.
_UNKNOWN_BYTES: Final = 0x7FFF0000
_UNKNOWN_AIFF_BYTES: Final = 0x7EFF0000
_UNKNOWN_FRAMES: Final = 1 << 48
#: Bytes of a sample, by the AU encodings that have a fixed size.
_AU_BYTES: Final = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 27: 1}
#: Frames in a packet of AIFF's one codec whose header counts packets.
_IMA4_FRAMES: Final = 64
_PAGE_BYTES: Final = 65_307
_PAGE_HEADER: Final = 27
_LAST_PAGE: Final = 4


def wav_frames(source: Source) -> int | None:
    """Return the number of frames that a WAV header claims; None if it claims none."""
    frame, long = 0, None
    for name, length, _ in _chunks(source, _CHUNK, 12):
        if name == b"ds64":
            long = int.from_bytes(source.read(16)[8:], "little")
        elif name == b"fmt ":
            fields = source.read(16)
            frame = int.from_bytes(fields[12:14], "little") if int.from_bytes(fields[:2], "little") in _KINDS else 0
        elif name == b"data":
            known = long if long is not None else length if length < _UNKNOWN_BYTES else None
            return known // frame if known and frame else None
    return None


def aiff_frames(source: Source) -> int | None:
    """Return the number of frames that an AIFF header claims; None if it claims none."""
    frames = 0
    for name, length, _ in _chunks(source, _AIFF_CHUNK, 12):
        if name == b"COMM":
            fields = source.read(22)
            frames = int.from_bytes(fields[2:6], "big") * (_IMA4_FRAMES if fields[18:] == b"ima4" else 1)
        elif name == b"SSND":
            return frames if frames and length < _UNKNOWN_AIFF_BYTES else None
    return None


def au_frames(source: Source) -> int | None:
    """Return the number of frames that an AU header claims; None if it claims none."""
    source.seek(8)
    size, encoding, _, channels = struct.unpack(">4I", source.read(16).ljust(16, b"\0"))
    frame = _AU_BYTES.get(encoding, 0) * channels
    return size // frame if frame and 0 < size < _UNKNOWN_BYTES else None


def caf_frames(source: Source) -> tuple[int | None, tuple[int, int] | None]:
    """Return the number of frames that a CAF header claims, or None.

    If the samples end before their chunk does, or its length is unknown, also return where that length stands and what
    it is; libsndfile refuses such a file.
    """
    size, packet, frames, valid = source.seek(0, io.SEEK_END), 0, 0, None
    for name, length, at in _chunks(source, _CAF_CHUNK, 8):
        if name == b"desc":
            packet, frames = struct.unpack(">16x2I", source.read(24).ljust(24, b"\0"))
        elif name == b"pakt":
            valid = int.from_bytes(source.read(16)[8:], "big") or None
        elif name == b"data":
            claimed = (length - 4) // packet * frames if packet and length > 4 else valid
            known = claimed if claimed is not None and claimed < _UNKNOWN_FRAMES else None
            return known, None if 0 <= length <= size - at else (at - 8, size - at)
    return None, None


def _chunks(source: Source, header: struct.Struct, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name and length of the chunks from `at` on, and where each begins, which is the source's position."""
    for _ in range(MAX_CHUNKS):
        source.seek(at)
        data = source.read(header.size)
        if len(data) < header.size:
            return
        name, length = header.unpack(data)
        at += header.size
        yield name, length, at
        if not 0 <= length < 1 << 48:
            return
        at += length + (0 if header is _CAF_CHUNK else length % 2)


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
