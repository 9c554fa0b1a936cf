"""Packed scores to JSON sound events.

A window's events depend on nothing that changes: it is final once it can be read, and the sensitivities were fixed when
the session was created. So windows are rendered in pieces of up to `PIECE`, aligned so that a whole piece stays
the same however the pages around it are cut, and recent pieces are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import orjson

from app.lru import Lru
from topics.errors import Unavailable
from topics.geometry import Geometry
from topics.ports.sessions import Sessions
from topics.scores import probability, threshold
from topics.sessions.records import Opened

PIECE: Final = 128
#: What a window reports when no tag was found; clients skip that name.
OTHERS: Final = b'{"name":"Others","probability":0.0}'

#: What a tag misses to its threshold, as stored, at most 0; and the tag. In this order the most probable comes first.
Found = tuple[int, int]
_Sensitivities = tuple[tuple[str, int], ...]


class Palette:
    """How the scores of one model look at one setting of the sensitivities."""

    def __init__(self, tags: Sequence[str], default: int, by_tag: dict[str, int]) -> None:
        self._width = len(tags)
        self._names = [orjson.dumps(tag) for tag in tags]
        self._sensitivities = [by_tag.get(tag, default) for tag in tags]
        self._thresholds = [threshold(sensitivity) for sensitivity in self._sensitivities]
        # Few tags of a window are found; the search for a byte of at least the lowest threshold runs in C.
        self._candidates = re.compile(b"[\\x%02x-\\xff]" % min(self._thresholds, default=255))
        self._fragments: dict[Found, bytes] = {}

    def found(self, scores: bytes) -> list[list[Found]]:
        """Return, for each window of packed scores, the tags that are reported, the most probable first."""
        found: list[list[Found]] = [[] for _ in range(len(scores) // self._width)]
        for match in self._candidates.finditer(scores):
            place = match.start()
            window, tag = divmod(place, self._width)
            missing = self._thresholds[tag] - scores[place]
            if missing <= 0:
                found[window].append((missing, tag))
        for tags in found:
            tags.sort()
        return found

    def tags(self, scores: bytes) -> list[bytes]:
        """Return, for each window of packed scores, its tags as JSON objects, the most probable first."""
        return [self._listed(window) if window else OTHERS for window in self.found(scores)]

    def shown(self, entry: Found) -> tuple[bytes, bytes]:
        """Return the name of a tag and its probability as JSON."""
        missing, tag = entry
        number = probability(self._thresholds[tag] - missing, self._sensitivities[tag])
        return self._names[tag], repr(number).encode("ascii")

    def _listed(self, ranked: list[Found]) -> bytes:
        return b",".join([self._fragments.get(entry) or self._fragment(entry) for entry in ranked])

    def _fragment(self, entry: Found) -> bytes:
        fragment = b'{"name":%s,"probability":%s}' % self.shown(entry)
        self._fragments[entry] = fragment
        return fragment


class Renderer:
    """Renders windows of sessions, and remembers the pieces that were read last."""

    def __init__(self, sessions: Sessions, capacity: int) -> None:
        self._sessions = sessions
        self._pieces: Lru[tuple[str, int, int], bytes] = Lru(capacity, weigh=len)
        self._palette = lru_cache(maxsize=256)(self._new_palette)

    def events(self, session: str, opened: Opened, first: int, end: int) -> bytes:
        """Return windows [first, end), which must exist, as SenseEvent objects with commas between.

        Raises:
            Unavailable: the windows are not all here.
        """
        pieces = []
        while first < end:
            stop = min(end, first - first % PIECE + PIECE)
            piece = self._pieces.get((session, first, stop))
            if piece is None:
                piece = self._rendered(session, opened, first, stop)
                self._pieces.put((session, first, stop), piece)
            pieces.append(piece)
            first = stop
        return pieces[0] if len(pieces) == 1 else b",".join(pieces)

    def _rendered(self, session: str, opened: Opened, first: int, stop: int) -> bytes:
        geometry = Geometry(opened.window_ms, opened.hop_ms)
        sensitivities = tuple(sorted(opened.tags_sensitivity.items()))
        tags: list[bytes] = []
        for windows in self._sessions.windows(session, first, stop - first):
            palette = self._palette(windows.model, opened.default_sensitivity, sensitivities)
            tags.extend(palette.tags(windows.scores))
        if len(tags) != stop - first:
            raise Unavailable("the session's results are not all here yet")
        return b",".join([_event(geometry, first + index, found) for index, found in enumerate(tags)])

    def _new_palette(self, model: str, default: int, sensitivities: _Sensitivities) -> Palette:
        return Palette(self._sessions.tags(model), default, dict(sensitivities))


def _event(geometry: Geometry, window: int, tags: bytes) -> bytes:
    start, end = geometry.bounds(window)
    return b'{"start_time":%s,"end_time":%s,"tags":[%s]}' % (_number(start), _number(end), tags)


def _number(seconds: int | float) -> bytes:
    return repr(seconds).encode("ascii")
