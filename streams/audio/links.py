"""Makes libsndfile read an Ogg or FLAC file to its real end, and not beyond damage.

To its sender, several files in a row are one file, but libsndfile ends with the first. In Ogg (RFC 3533), these are the
links of a chain. libsndfile silently skips a page of Ogg that is damaged or missing, so all audio after it would come
too early. Here, the file ends before such a page.
"""

import io
import zlib
from typing import Final

from streams.audio.container import Source

#: How far libFLAC reads ahead, with room to spare.
FLAC_AHEAD: Final = 1 << 17
#: The name of the format, and the type and length of the first block of metadata, which may be the last.
_FLACS: Final = (b"fLaC\0\0\0\x22", b"fLaC\x80\0\0\x22")
LOST_PAGE: Final = "a page of the Ogg file is damaged or missing"
SAME_NUMBER: Final = "two files in it have the same serial number"
#: A page begins with this name and version. The last byte of its header is the number of lengths that follow.
_OGG: Final = b"OggS\0"
_HEADER: Final = 27
_FIRST_PAGE: Final = 2
#: Positions in the audio of pages of headers, and of pages in which no packet ends.
_NO_AUDIO: Final = (bytes(8), b"\xff" * 8)
_SEARCHED_BYTES: Final = 1 << 16
#: Bytes with their bits reversed: zlib counts bits from the other end than Ogg.
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class Link:
    """Presents a source from `start` on as one file.

    One thread at a time. The source's methods raise nothing, and `seek` returns -1 for an impossible position.
    """

    def __init__(self, source: Source, start: int = 0) -> None:
        self._source = source
        self._start = start
        self._at = 0
        self._size = max(0, source.seek(0, io.SEEK_END) - start)

    def read(self, size: int) -> bytes:
        data = self._read(self._at, size)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; -1 for an impossible position."""
        position = offset + (0, self._at, self._size)[whence]
        if not 0 <= position < 2**62:
            return -1
        self._at = position
        return position

    def tell(self) -> int:
        return self._at

    def _read(self, at: int, size: int) -> bytes:
        self._source.seek(self._start + at)
        return self._source.read(size)


class CafLink(Link):
    """Presents a CAF file with the length that its samples have. One thread at a time."""

    def __init__(self, source: Source, place: int, length: int) -> None:
        super().__init__(source)
        self._place = place
        self._length = length.to_bytes(8, "big")

    def read(self, size: int) -> bytes:
        first = self._place - self._at
        data = bytearray(super().read(size))
        for place, byte in enumerate(self._length, first):
            if 0 <= place < len(data):
                data[place] = byte
        return bytes(data)


def following_flac(source: Source, start: int) -> int | None:
    """Return where the next FLAC file begins, once libsndfile has read the one from `start` on; None at the end."""
    first = max(start + 1, source.seek(0, io.SEEK_CUR) - FLAC_AHEAD)
    source.seek(first)
    data = source.read(2 * FLAC_AHEAD)
    return min((first + at for flac in _FLACS if (at := data.find(flac)) >= 0), default=None)


class OggLink(Link):
    """Presents one link of an Ogg file, up to its first page that is damaged or missing. One thread at a time."""

    def __init__(self, source: Source, start: int = 0) -> None:
        super().__init__(source, start)
        #: What is wrong after the link's readable audio. Known once libsndfile has read that far.
        self.damage: str | None = None
        self._following: int | None = None
        #: How far the link was checked, and the end of its last page before; and where it ends, once that is known.
        self._checked = self._pages_end = 0
        self._end: int | None = None
        #: The number of the next page of each stream, and whether some of the link's audio has come.
        self._numbers: dict[bytes, int] = {}
        self._begun = False

    def read(self, size: int) -> bytes:
        # Before it reads the file from the beginning, libsndfile searches the last page, from the file's end.
        if self._at <= self._checked:
            self._check(self._at + size)
        return super().read(size if self._end is None else max(0, min(size, self._end - self._at)))

    def following(self) -> int | None:
        """Check all pages of the link, and return where the next one begins in the source; None if there is none."""
        self._check(self._size)
        if self._following is not None and self._at < self._pages_end:
            # A file has the length that its last page says; libsndfile took the last page of another link.
            self.damage = SAME_NUMBER
        return self._following

    def _check(self, end: int) -> None:
        """Check the pages that begin before `end`."""
        while self._end is None and self._checked < min(end, self._size):
            header = self._read(self._checked, _HEADER)
            if header[: len(_OGG)] != _OGG:
                # These bytes may be a page that lost its name, also the first one with audio.
                self._checked, self._begun = self._next_page(self._checked + 1), True
                continue
            lengths = self._read(self._checked + _HEADER, header[-1])
            page = header + lengths + self._read(self._checked + _HEADER + len(lengths), sum(lengths))
            if len(header) < _HEADER or len(page) < _HEADER + header[-1] + sum(lengths):
                # Cut off, or so long only by a damaged header.
                self.damage = LOST_PAGE if _OGG in page[1:] else None
                self._end = self._size if self.damage is None else self._checked
            elif not _is_intact(page) or self._is_missing_before(page):
                self.damage, self._end = LOST_PAGE, self._checked
            elif self._begun and page[5] & _FIRST_PAGE:
                self._following, self._end = self._start + self._checked, self._checked
            else:
                self._begun |= page[6:14] not in _NO_AUDIO
                self._numbers[page[14:18]] = int.from_bytes(page[18:22], "little") + 1
                self._checked += len(page)
                self._pages_end = self._checked

    def _is_missing_before(self, page: bytes) -> bool:
        """Return whether a page of its stream is missing before it; not if a recording begins amid a broadcast."""
        number = int.from_bytes(page[18:22], "little")
        return self._begun and not page[5] & _FIRST_PAGE and self._numbers.get(page[14:18], number) != number

    def _next_page(self, at: int) -> int:
        """Return where the first page from `at` on begins; the link's size if there is none."""
        while data := self._read(at, _SEARCHED_BYTES):
            if (found := data.find(_OGG)) >= 0:
                return at + found
            at += max(1, len(data) - len(_OGG) + 1)
        return self._size


def _is_intact(page: bytes) -> bool:
    """Return whether a page has its checksum: CRC-32 from 0, with the checksum's own bytes as zeros."""
    checksum = zlib.crc32((page[:22] + bytes(4) + page[26:]).translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return checksum == int.from_bytes(page[22:26].translate(_REVERSED), "big")
