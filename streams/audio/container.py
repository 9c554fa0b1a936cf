"""Finds the files in a source: recognises each container by its first bytes, after tags and junk."""

import re
from typing import Final, Protocol

from streams.audio import raw_check
from topics.errors import AudioError, NoAudio
from topics.media import BEGINNINGS, CONTAINERS, HEAD, KINDS, Container, Media

#: How far a file is searched after a tag, junk or another file.
SEARCHED_BYTES: Final = 1 << 18
#: Sizes of the headers of an ID3 tag (also of its footer) and of an APE tag; and how many tags are skipped.
_ID3_BYTES: Final = 10
_APE_BYTES: Final = 32
_TAIL_BYTES: Final = 128
_MOST_TAGS: Final = 8
_BEGINNINGS: Final = re.compile(b"|".join(b"(%s)" % one for one in BEGINNINGS.values()), re.DOTALL)
_BEGUN: Final = [CONTAINERS[content_type] for content_type in BEGINNINGS]


class Source(Protocol):
    """What this package needs of a binary file."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


def detect(head: bytes) -> Container | None:
    """Return the container whose file begins with `head`; None if unknown."""
    found = _BEGINNINGS.match(head)
    return _BEGUN[found.lastindex - 1] if found and found.lastindex else None


def find(source: Source) -> tuple[Container | None, int]:
    """Return the container of the first file and where it begins; None if there is none.

    A tag does not decide the container, and like a player, this searches if the tag's size is wrong.
    """
    tagged = _skip_tags(source)
    source.seek(tagged)
    if (kind := detect(source.read(HEAD))) is not None:
        return kind, tagged
    if _other(source) is not None:
        return None, 0
    return search(source, 0) or search(source, tagged) or (None, 0)


def search(source: Source, start: int) -> tuple[Container, int] | None:
    """Return the container of the first file from `start` on that is beyond doubt, and where it begins."""
    source.seek(start)
    found = raw_check.first_container(source.read(SEARCHED_BYTES + raw_check.HEAD), SEARCHED_BYTES)
    return None if found is None else (CONTAINERS[found[1]], start + found[0])


def end_of(source: Source) -> int:
    """Return where the tags at the end of a source begin: ID3v1, Lyrics3 and APE."""
    end = source.seek(0, 2)
    for _ in range(_MOST_TAGS):
        source.seek(max(0, end - _TAIL_BYTES))
        tail = source.read(min(end, _TAIL_BYTES))
        if tail[:3] == b"TAG" and len(tail) == _TAIL_BYTES:
            size = _TAIL_BYTES
        elif tail[-9:] == b"LYRICS200" and tail[-15:-9].isdigit():
            size = int(tail[-15:-9]) + 15
        elif tail[-_APE_BYTES:-24] == b"APETAGEX":
            has_header = tail[-9] >> 7
            size = int.from_bytes(tail[-20:-16], "little") + _APE_BYTES * has_header
        else:
            break
        if not 0 < size <= end:
            break
        end -= size
    return end


def check_declared(source: Source, media: Media) -> tuple[Container, int]:
    """Check that `source` holds a file as declared; return its container and where it begins.

    Raises:
        AudioError: the source is empty, or its container is unknown or not the declared one.
    """
    detected, start = find(source)
    if detected is None:
        source.seek(0)
        if not source.read(1):
            raise NoAudio
        declared = "" if media.container == "any" else f"declared {media.declared}, but "
        other = _other(source)
        raise AudioError(
            f"{declared}the data is not a supported audio file" + (f": it is {other}" if other is not None else "")
        )
    if media.container not in ("any", detected):
        raise AudioError(f"declared {media.declared}, but the data is {KINDS[detected].name}")
    return detected, start


def _other(source: Source) -> str | None:
    """Return what a source is that has a known container, but none that is read.

    Such a container may cut audio in pieces, so nothing is searched in it.
    """
    source.seek(0)
    known = raw_check.container_of(source.read(raw_check.HEAD))
    return known[0] if known is not None and not known[1] else None


def _skip_tags(source: Source) -> int:
    """Return where the data after ID3 and APE tags begins."""
    start = 0
    for _ in range(_MOST_TAGS):
        source.seek(start)
        head = source.read(_APE_BYTES)
        if head[:3] == b"ID3" and len(head) >= _ID3_BYTES and max(head[6:10]) < 0x80:
            has_footer = head[5] >> 4 & 1
            size = sum(byte << 7 * (3 - place) for place, byte in enumerate(head[6:10]))
            start += _ID3_BYTES * (1 + has_footer) + size
        elif head[:8] == b"APETAGEX" and len(head) == _APE_BYTES:
            start += _APE_BYTES + int.from_bytes(head[12:16], "little")
        else:
            break
    return start
