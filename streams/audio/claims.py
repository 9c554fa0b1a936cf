"""Reads the length that a file claims, to detect truncation, and finds the length that a writer left open.

Formats: RIFF, EBU Tech 3306 (RF64, BW64), Sony Wave64, AIFF-C, AU, CAF, and the page headers of RFC 3533 (Ogg).
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from streams.audio import raw_check
from streams.audio.container import Source
from topics.media import Container

#: No real recording has more chunks before its samples.
MAX_CHUNKS: Final = 64
_CHUNK: Final = struct.Struct("<4sI")
_BIG_CHUNK: Final = struct.Struct(">4sI")
_CAF_CHUNK: Final = struct.Struct(">4sq")
_WAVE64_CHUNK: Final = struct.Struct("<4s12xq")
#: PCM, float, A-law, mu-law, and the extensible format: their frames have a fixed size.
_KINDS: Final = (1, 3, 6, 7, 0xFFFE)
#: Streaming writers put values from here on, or 0, when they do not know the length.
_UNKNOWN_BYTES: Final = 0x7EFF0000
_UNKNOWN_LONG: Final = 1 << 48
#: Bytes of a sample, by the AU encodings that have a fixed size.
_AU_BYTES: Final = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 27: 1}
#: Frames in a packet of AIFF's one codec whose header counts packets.
_IMA4_FRAMES: Final = 64
#: By the beginning of a file: the header of its chunks, and where the first one begins.
_HEADERS: Final = {
    b"RIFX": (_BIG_CHUNK, 12),
    b"FORM": (_BIG_CHUNK, 12),
    b"caff": (_CAF_CHUNK, 8),
    b"riff": (_WAVE64_CHUNK, 40),
}
#: Bytes before the samples of a chunk, which its length counts too.
_LEADING: Final = {(_BIG_CHUNK, b"SSND"): 8, (_CAF_CHUNK, b"data"): 4}
#: Tags that may follow the samples of any file.
TAGS: Final = (b"TAG", b"ID3", b"3DI", b"APETAGEX", b"LYRICSBEGIN")
#: In the first frame of an MP3, if it states the numbers of frames and bytes.
_FRAME_BYTES: Final = 64
_XING: Final = re.compile(rb"(?:Xing|Info)\0\0\0[\3\7\x0b\x0f]")
_PADDING_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = 65_307
_PAGE_HEADER: Final = 27
_LAST_PAGE: Final = 4


class Claim(NamedTuple):
    """What a file's header says of its length."""

    #: Frames, or None if it says nothing that is true.
    frames: int | None = None
    #: Where its samples end in the source, if that is known.
    end: int | None = None
    #: Where a wrong length stands, and the right one.
    place: int = 0
    right: bytes = b""
    #: Bytes of samples that the header does not count.
    more: int = 0


class _Field(NamedTuple):
    """Where a length stands in a file, and what it says."""

    place: int
    width: int
    value: int
    #: How many of the bytes that it counts are no samples.
    others: int = 0

    @property
    def samples(self) -> int:
        return max(0, self.value - self.others)


def read(source: Source, kind: Container, start: int, end: int) -> Claim:
    """Return the claim of a file in [start, end) of a source."""
    source.seek(start)
    head = source.read(_FRAME_BYTES)
    if kind == "mp3":
        return _mp3(head, end - start)
    if kind == "au":
        at, size, encoding, _, channels = struct.unpack(">5I", head[4:24].ljust(20, b"\0"))
        frame = _AU_BYTES.get(encoding, 0) * channels
        return _claim(source, _BIG_CHUNK, _Field(start + 8, 4, size), frame and size // frame, start + at, end)
    header, first = _HEADERS.get(head[:4], (_CHUNK, 12))
    # Bytes and frames of a packet, and frames of the whole file if the header counts them.
    packet, frames, count = 0, 1, 0
    long: _Field | None = None
    for name, length, at in _chunks(source, header, start + first):
        if name == b"ds64":
            long = _Field(at + 8, 8, int.from_bytes(source.read(16)[8:], "little"))
        elif name == b"fmt ":
            order = ">" if header is _BIG_CHUNK else "<"
            coding, size = struct.unpack(f"{order}H10xH", source.read(14).ljust(14, b"\0"))
            packet = size if coding in _KINDS else 0
        elif name == b"COMM":
            fields = source.read(22)
            count = int.from_bytes(fields[2:6], "big") * (_IMA4_FRAMES if fields[18:] == b"ima4" else 1)
        elif name == b"desc":
            packet, frames = struct.unpack(">16x2I", source.read(24).ljust(24, b"\0"))
        elif name == b"pakt":
            count = int.from_bytes(source.read(16)[8:], "big")
        elif name in (b"data", b"SSND"):
            width = 4 if header in (_CHUNK, _BIG_CHUNK) else 8
            field = long or _Field(at - width, width, length, _LEADING.get((header, name), 0))
            whole = count or (packet and field.samples // packet * frames)
            return _claim(source, header, field, whole, at + field.others, end)
    return Claim()


def _claim(source: Source, header: struct.Struct, field: _Field, frames: int, at: int, end: int) -> Claim:
    """Return the claim of a file whose header counts the bytes of its samples, from `at` on, in a field."""
    is_unknown = field.value < 0 or field.samples >= (_UNKNOWN_BYTES if field.width == 4 else _UNKNOWN_LONG)
    rest, known = max(0, end - at), field.samples
    if rest and (is_unknown or (known < rest and _is_audio(source, header, at, known, end))):
        own = header.size if header is _WAVE64_CHUNK else field.others
        order: Literal["little", "big"] = "big" if header in (_BIG_CHUNK, _CAF_CHUNK) else "little"
        right = min(rest + own, (1 << 8 * field.width) - 1).to_bytes(field.width, order)
        return Claim(None, None, field.place, right, 0 if is_unknown or not known else rest - known)
    return Claim(None if is_unknown else frames or None, at + known if known <= rest else None)


def _mp3(head: bytes, size: int) -> Claim:
    """Return the claim of an MP3 whose first frame states the frames and bytes of the whole, if bytes are missing."""
    found = _XING.search(head)
    if found is None or len(head) < found.end() + 8:
        return Claim()
    frames, data = struct.unpack_from(">2I", head, found.end())
    is_first = head[1] >> 3 & 3 == 3
    return Claim(frames * (1152 if is_first else 576) if data > size else None)


def _chunks(source: Source, header: struct.Struct, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name and length of the chunks from `at` on, and where each begins, which is the source's position."""
    for _ in range(MAX_CHUNKS):
        source.seek(at)
        data = source.read(header.size)
        if len(data) < header.size:
            return
        name, length = header.unpack(data)
        at += header.size
        if header is _WAVE64_CHUNK:
            length -= header.size
        yield name, length, at
        if not 0 <= length < _UNKNOWN_LONG:
            return
        at += length + (-length % 8 if header is _WAVE64_CHUNK else 0 if header is _CAF_CHUNK else length % 2)


def _is_audio(source: Source, header: struct.Struct, start: int, known: int, end: int) -> bool:
    """Return whether what follows the samples that a header counts is neither a chunk, a tag, padding nor a file."""
    for at in (start + known, start + known + 1):
        source.seek(at)
        head = source.read(_PADDING_BYTES)
        if len(head) < header.size or (known and not any(head)) or head.startswith(TAGS):
            return False
        name, length = header.unpack_from(head)
        if raw_check.container_of(head) or (name.isascii() and name.decode().isprintable() and length <= end - at):
            return False
    return True


def ogg_is_unfinished(source: Source, end: int) -> bool:
    """Return whether an Ogg file lacks a complete page flagged as the last before `end`; padding may follow it."""
    tail = b""
    for after in range(end, 0, -_PAGE_BYTES):
        before = max(0, after - 2 * _PAGE_BYTES)
        source.seek(before)
        tail = source.read(min(end, before + 2 * _PAGE_BYTES) - before)
        if b"OggS" in tail:
            break
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) < _PAGE_HEADER or not page[5] & _LAST_PAGE:
        return True
    segments = page[_PAGE_HEADER : _PAGE_HEADER + page[26]]
    return len(page) < _PAGE_HEADER + page[26] + sum(segments)
