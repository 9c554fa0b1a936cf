"""Makes libsndfile decode an MP3 to its real end: by itself it stops at the length claimed at the file's beginning.

Most files begin with a silent frame that holds the number of frames. If a file was joined from two, that number counts
only the first part, so a larger number replaces it. Without such a frame, libsndfile estimates the number from the file
size and the first frame, so it sees a larger size. Decoding ends with the data.

Frames follow ISO/IEC 11172-3 2.4.1.3 and 13818-3 2.4.2.3. The silent frame has "Xing" (or "Info" if all frames have the
same size) after side information of zeros, then four bytes of flags; if the lowest bit is set, the next four bytes are
the number of frames.
"""

import io
from typing import Final

from streams.audio import container
from streams.audio.container import Source

#: Maximum padding at the end, in samples: the encoder states it in 12 bits, and a decoder adds a frame.
PADDING: Final = (1 << 12) + 1152
#: No frame is longer.
FRAME_BYTES: Final = 2048
_HEADER_BYTES: Final = 4
#: More frames than any file has, and no byte of it looks like the beginning of a frame.
_MANY_FRAMES: Final = 0x7F7F7F7F
#: A size that, even with the longest frames, holds more audio than any file has.
_MANY_BYTES: Final = 1 << 45


class EndlessMp3:
    """Presents `head` and then `source` from `rest` on as one file; without a head, its size appears larger than it is.

    One thread at a time. The source's methods raise nothing, and `seek` returns -1 for an impossible position.
    """

    def __init__(self, source: Source, head: bytes, rest: int, excess: int) -> None:
        self._source = source
        self._head = head
        self._rest = rest
        self._excess = excess
        self._at = 0
        self._size = len(head) + max(0, source.seek(0, io.SEEK_END) - rest)
        #: Added to positions counted from the end, from which libsndfile learns the size.
        self._beyond = 0
        self.seek(0)

    @property
    def beginning(self) -> bytes:
        """The bytes that can replace the source's beginning in place; b"" if their number differs."""
        return self._head if len(self._head) == self._rest else b""

    @property
    def claims(self) -> bool:
        """Whether the file states its number of frames."""
        return bool(self._head)

    def claimed_frames(self, frames: int) -> int:
        """Return the frames that the file claims, given the frames libsndfile reports; all if libsndfile estimated."""
        return frames - self._excess if frames >= self._excess else frames

    def readinto(self, buffer: memoryview) -> int:
        """Read like a file; an incomplete last frame becomes silence."""
        size = len(buffer)
        data = self._head[self._at : self._at + size]
        if len(data) < size:
            data += self._source.read(size - len(data))
        self._at += len(data)
        if len(data) < size <= FRAME_BYTES and size > _HEADER_BYTES and not self._head:
            # This far before the end that libsndfile expects, a short read would count as damage and end everything.
            data = bytes(size)
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; -1 for an impossible position."""
        position = offset + (0, self._at, self._size)[whence]
        if position < 0 or self._source.seek(self._rest + max(0, position - len(self._head))) < 0:
            return -1
        self._at = position
        if whence != io.SEEK_CUR:
            self._beyond = _MANY_BYTES if whence == io.SEEK_END and not self._head else 0
        return self.tell()

    def tell(self) -> int:
        return self._at + self._beyond


def open_endless(source: Source) -> EndlessMp3 | None:
    """Return the file for libsndfile; None, with the source at position 0, if it does not begin like an MP3."""
    start, head = container.skip_tags(source, FRAME_BYTES)
    if head[:3] == b"ID3" or container.detect(head) != "mp3" or len(head) < _HEADER_BYTES:
        source.seek(0)
        return None
    mpeg_1, mono = head[1] >> 3 & 0b11 == 0b11, head[3] >> 6 == 0b11
    tag = _HEADER_BYTES + ((17, 9), (32, 17))[mpeg_1][mono]
    number = slice(tag + 8, tag + 12)
    frames = int.from_bytes(head[number], "big")
    # The two bytes after the header may be a checksum.
    silent = not any(head[_HEADER_BYTES + 2 : tag])
    if 0 < frames < _MANY_FRAMES and silent and head[tag : tag + 4] in (b"Xing", b"Info") and head[tag + 7] & 1:
        many = head[: number.start] + _MANY_FRAMES.to_bytes(4, "big")
        return EndlessMp3(source, many, start + number.stop, (_MANY_FRAMES - frames) * (1152 if mpeg_1 else 576))
    return EndlessMp3(source, b"", start, 0)
