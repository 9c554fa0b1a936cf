"""An MP3 that claims no end: libsndfile stops where the length that it takes from the beginning says, true or not.

Most files begin with a silent frame that tells how many follow. Of two that were put together it tells those of the
first, so a greater number is put in its place. Where it is missing, the number is guessed by the size of the file and
of its first frame, so a greater size is told. The data itself tells where it ends.

Frames are those of ISO/IEC 11172-3 2.4.1.3 and 13818-3 2.4.2.3. The silent one has "Xing" (or "Info" where all frames
have one size) after side information of zeros; then four bytes of flags, of which the lowest bit says that the next
four are the number of frames.
"""

from __future__ import annotations

import io
from typing import Final, Protocol

from streams.audio import container

#: Samples that are no sound at the end of a file: its coder tells their number in 12 bits, and a decoder adds a frame.
PADDING: Final = (1 << 12) + 1152
#: No frame is longer.
FRAME_BYTES: Final = 2048
_HEADER_BYTES: Final = 4
#: The beginning of a tag before the audio, which tells its length; and how many are skipped.
_ID3_BYTES: Final = 10
_MOST_TAGS: Final = 4
#: More than any file has, in bytes that look like the beginning of no frame.
_MANY_FRAMES: Final = 0x7F7F7F7F
#: So much that, by the longest frame, it is more audio than any file has of the shortest.
_MANY_BYTES: Final = 1 << 45


class ByteSource(Protocol):
    """A file that raises nothing."""

    def read(self, size: int) -> bytes:
        """Read as a file does."""
        ...

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek as a file does; -1 for nowhere."""
        ...


class EndlessMp3:
    """A file of `head` and what `source` has from `rest` on; without a head its size is not told, but a greater one."""

    def __init__(self, source: ByteSource, head: bytes, rest: int, excess: int) -> None:
        self._source = source
        self._head = head
        self._rest = rest
        self._excess = excess
        self._at = 0
        self._size = len(head) + max(0, source.seek(0, io.SEEK_END) - rest)
        #: What places that were counted from the end are too great by: they are asked for to learn the size.
        self._beyond = 0
        self.seek(0)

    def meant(self, claimed: int) -> int:
        """Return how many of the samples that libsndfile knows of are meant; all where it guessed them nevertheless."""
        return claimed - self._excess if claimed >= self._excess else claimed

    def readinto(self, buffer: memoryview) -> int:
        """Read as a file does; silence instead of a last frame that is not whole."""
        size = len(buffer)
        data = self._head[self._at : self._at + size]
        if len(data) < size:
            data += self._source.read(size - len(data))
        self._at += len(data)
        if len(data) < size <= FRAME_BYTES and size > _HEADER_BYTES and not self._head:
            # So far from the end that was told this would be damage, and nothing be given of what is read with it.
            data = bytes(size)
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek as a file does; -1 for nowhere."""
        place = offset + (0, self._at, self._size)[whence]
        if place < 0 or self._source.seek(self._rest + max(0, place - len(self._head))) < 0:
            return -1
        self._at = place
        if whence != io.SEEK_CUR:
            self._beyond = _MANY_BYTES if whence == io.SEEK_END and not self._head else 0
        return self.tell()

    def tell(self) -> int:
        """Tell as a file does."""
        return self._at + self._beyond


def open_endless(source: ByteSource) -> EndlessMp3 | None:
    """Return the audio of a file, None where none begins as in an MP3; the source stands at its beginning then."""
    source.seek(0)
    start, head = 0, source.read(FRAME_BYTES)
    for _ in range(_MOST_TAGS):
        if head[:3] == b"ID3" and len(head) >= _ID3_BYTES and max(head[6:10]) < 0x80:
            start += _ID3_BYTES + sum(byte << 7 * (3 - place) for place, byte in enumerate(head[6:10]))
            source.seek(start)
            head = source.read(FRAME_BYTES)
    if head[:3] == b"ID3" or container.detect(head) != "mp3" or len(head) < _HEADER_BYTES:
        source.seek(0)
        return None
    mpeg_1, mono = head[1] >> 3 & 0b11 == 0b11, head[3] >> 6 == 0b11
    tag = _HEADER_BYTES + ((17, 9), (32, 17))[mpeg_1][mono]
    number = slice(tag + 8, tag + 12)
    frames = int.from_bytes(head[number], "big")
    # Two bytes after the header may be a checksum.
    silent = not any(head[_HEADER_BYTES + 2 : tag])
    if 0 < frames < _MANY_FRAMES and silent and head[tag : tag + 4] in (b"Xing", b"Info") and head[tag + 7] & 1:
        many = head[: number.start] + _MANY_FRAMES.to_bytes(4, "big")
        return EndlessMp3(source, many, start + number.stop, (_MANY_FRAMES - frames) * (1152 if mpeg_1 else 576))
    return EndlessMp3(source, b"", start, 0)
