"""The files that a source holds, one after another, each presented to FFmpeg by itself.

To its sender, several files in a row are one file, but readers stop at the end of the first, or mistake the others.
"""

import io
import re
from typing import Final

from streams.audio import container
from streams.audio.claims import Claim
from streams.audio.container import Source
from topics.media import Container

#: Longer than what a sign matches.
_SIGN_BYTES: Final = 128
#: How a file begins, for containers that are read from beginning to end.
_SIGNS: Final[dict[Container, re.Pattern[bytes]]] = {
    "wav": re.compile(rb"(?:RIFF|RIFX|RF64|BW64)....WAVE", re.DOTALL),
    "aiff": re.compile(rb"FORM....AIF[FC]", re.DOTALL),
    "caf": re.compile(rb"caff\0\x01\0\0"),
    "ogg": re.compile(rb"OggS\0[\2\3\6\7]"),
    "flac": re.compile(rb"fLaC[\0\x80]\0\0\x22"),
    "matroska": re.compile(rb"\x1a\x45\xdf\xa3.{1,60}?(?:webm|matroska)", re.DOTALL),
    "asf": re.compile(rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\0\xaa\0\x62\xce\x6c"),
    # The first block of the first sample.
    "wavpack": re.compile(
        rb"wvpk.{12}\0{4}.{5}[%s]" % re.escape(bytes(byte for byte in range(256) if byte & 8)), re.DOTALL
    ),
    "au": re.compile(rb"\.snd\0\0......\0\0\0[\x01-\x1b]\0[\0-\x06]..\0\0\0[\x01-\x10]", re.DOTALL),
}
#: A page of Ogg that begins no stream. Streams that belong together begin before it.
_OGG_BODY: Final = re.compile(rb"OggS\0[\0\1\4\5]")
#: FFmpeg searches these containers; it reads all others from beginning to end.
_SEARCHED: Final = frozenset[Container]({"mp4", "wav", "aiff", "caf", "mp3", "ogg"})
_MOST_BOXES: Final = 1 << 17
_BOX: Final = 8
#: Boxes of which a file that was cut off may have a part.
_LARGE_BOXES: Final = (b"mdat", b"moov", b"moof")


class Part:
    """One file of a source, read from beginning to end, up to the next file of its kind. One thread at a time.

    The source's methods raise nothing, and `seek` returns -1 for an impossible position.
    """

    def __init__(self, source: Source, kind: Container, start: int, end: int, claim: Claim) -> None:
        self.start = start
        #: Where it ends in the source, as far as that is known.
        self.end = end
        #: The position in the source.
        self.at = start
        self._source = source
        self._claim = claim
        # Where its header does not state where it ends, the next file does.
        self._sign = None if claim.end is not None else _SIGNS.get(kind)
        self._body = _OGG_BODY if kind == "ogg" else None
        #: How far signs were searched.
        self._searched = start + 1

    @property
    def stopped(self) -> int:
        """Where FFmpeg stopped, or the end, where it seeks."""
        return min(self.at, self.end)

    def read(self, size: int) -> bytes:
        size = max(0, min(size, self.end - self.at))
        self._source.seek(self.at)
        # FFmpeg looks at the end of some files first, which is not searched.
        in_order = self._sign is not None and self.at <= self._searched
        data = self._source.read(size + (_SIGN_BYTES if in_order else 0))
        if in_order:
            data = data[: self._until_sign(data)]
            self._searched = max(self._searched, self.at + min(len(data), size))
        data, begin = data[:size], self.at
        self.at += len(data)
        if begin <= (place := self._claim.place) < self.at and self._claim.right:
            first = place - begin
            data = (data[:first] + self._claim.right + data[first + len(self._claim.right) :])[: len(data)]
        return data

    def _until_sign(self, data: bytes) -> int:
        """Return how many bytes come before the next file."""
        first = self._searched - self.at
        if self._body is not None:
            body = self._body.search(data, first)
            first = len(data) if body is None else body.end()
            self._body = None if body else self._body
        assert self._sign is not None
        found = self._sign.search(data, first)
        if found is not None:
            self.end = self.at + found.start()
        return self.end - self.at


class SearchedPart(Part):
    """The same for a file in which FFmpeg may seek. One thread at a time."""

    @property
    def stopped(self) -> int:
        return self.end

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; -1 for an impossible position."""
        position = offset + (self.start, self.at, self.end)[whence]
        if not self.start <= position < 2**62:
            return -1
        self.at = position
        return position - self.start

    def tell(self) -> int:
        return self.at - self.start


def part(source: Source, kind: Container, start: int, end: int, claim: Claim) -> Part:
    """Return the file of a source that begins at `start`; the source's last file ends at `end`."""
    after = claim.end
    if kind == "mp4":
        after = boxes(source, start, end)[1]
    if after is not None and after < end:
        # Other chunks may follow the samples in the last three.
        found = (kind, after) if kind in ("wav", "au") else container.search(source, after)
        end = end if found is None else min(end, found[1])
    return (SearchedPart if kind in _SEARCHED else Part)(source, kind, start, end, claim)


def boxes(source: Source, start: int, end: int) -> tuple[list[bytes], int]:
    """Return the names of the boxes of an MP4 file, at the highest level, and where they end."""
    names: list[bytes] = []
    at = start
    while len(names) < _MOST_BOXES and at < end:
        source.seek(at)
        header = source.read(2 * _BOX)
        size, name = int.from_bytes(header[:4], "big"), header[4:_BOX]
        if size == 1:
            size = int.from_bytes(header[_BOX:], "big")
        if not (name.isalnum() and name.isascii()) or (name == b"ftyp" and names) or (0 < size < _BOX):
            break
        if at + size > end and name not in _LARGE_BOXES:
            break
        names.append(name)
        at = at + size if size else end
    return names, min(at, end)
