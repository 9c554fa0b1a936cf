"""Tells a FLAC file that was cut off from one that is damaged: libFLAC reports both as a loss of synchronisation.

Frame headers are those of RFC 9639, section 9.1: a sync code, codes of the format, the number of the frame (or of its
first sample, if frames differ in length) and a checksum.
"""

import io
import re
from typing import Final, NamedTuple

from streams.audio.container import Source

#: Longer than nearly every frame: 65,535 samples of 16-bit stereo.
TAIL_BYTES: Final = 1 << 18
_SYNC: Final = re.compile(rb"\xff[\xf8\xf9]")
#: The size of the fields before the number; of a number; of the sizes after it; and of the frame's own checksum.
_EXCESS_BYTES: Final = 64
_SAMPLE_BYTES: Final = 4
#: Codes of the number of samples, where it follows the number in one byte or two.
_EXPLICIT: Final = {6: 1, 7: 2}
#: The same for the sample rate.
_EXPLICIT_RATE: Final = {12: 1, 13: 2, 14: 2}


class FrameHead(NamedTuple):
    """The header of a frame."""

    #: The frame's number, or that of its first sample if frames differ in length.
    number: int
    #: Whether all frames but the last have the same length.
    fixed: bool
    samples: int
    channels: int


def ends_after(source: Source, decoded: int, claimed: int) -> bool:
    """Return whether a file is cut off in the frame after `decoded` samples.

    If a later frame follows, or more bytes than one frame has, the file is damaged there.
    """
    source.seek(max(0, source.seek(0, io.SEEK_END) - TAIL_BYTES))
    tail = source.read(TAIL_BYTES)
    heads = [(sync.start(), head) for sync in _SYNC.finditer(tail) if (head := frame_head(tail, sync.start()))]
    # The last frame may be shorter than the others.
    usual = sorted(head.samples for _, head in heads)[len(heads) // 2] if heads else 0
    cut = False
    for at, head in heads:
        start = head.number * usual if head.fixed else head.number
        if decoded < start < claimed:
            return False
        if decoded in (start, start + head.samples):
            cut = len(tail) - at <= head.samples * head.channels * _SAMPLE_BYTES + _EXCESS_BYTES
    return cut


def frame_head(data: bytes, at: int) -> FrameHead | None:
    """Return the frame header at a position; None if there is none."""
    if len(data) < at + 5:
        return None
    size_code, rate_code, channels_code = data[at + 2] >> 4, data[at + 2] & 15, data[at + 3] >> 4
    ones = 8 - (data[at + 4] ^ 0xFF).bit_length()
    length = max(1, ones)
    end = at + 4 + length + _EXPLICIT.get(size_code, 0) + _EXPLICIT_RATE.get(rate_code, 0)
    if not size_code or rate_code == 15 or channels_code > 10 or ones in (1, 8) or len(data) <= end:
        return None
    if _checksum(data[at:end]) != data[end]:
        return None
    number = data[at + 4] & (0x7F >> ones)
    for byte in data[at + 5 : at + 4 + length]:
        number = number << 6 | byte & 0x3F
    if size_code in _EXPLICIT:
        explicit = at + 4 + length
        samples = int.from_bytes(data[explicit : explicit + _EXPLICIT[size_code]], "big") + 1
    else:
        samples = 192 if size_code == 1 else 576 << size_code - 2 if size_code < 6 else 256 << size_code - 8
    return FrameHead(number, data[at + 1] == 0xF8, samples, channels_code + 1 if channels_code < 8 else 2)


def _checksum(data: bytes) -> int:
    """Return the CRC-8 of a header: polynomial 0x07, from 0."""
    value = 0
    for byte in data:
        value = _REMAINDERS[value ^ byte]
    return value


def _remainder(value: int) -> int:
    for _ in range(8):
        value = value << 1 ^ (0x107 if value & 0x80 else 0)
    return value


_REMAINDERS: Final = bytes(map(_remainder, range(256)))
