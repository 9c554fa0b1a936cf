"""Pages of windows as JSON.

A window is final once it can be read, and sensitivities are fixed when the session is created, so the events of a
window never change. Windows are rendered in aligned pieces of up to `PIECE`, so that a whole piece is the same for all
page boundaries. Recent pieces are cached.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from cachetools import LRUCache
from msgspec import UNSET, UnsetType

from app.windows import SenseEvent, WindowRenderer, encode
from topics.errors import Unavailable
from topics.ports.sessions import Sessions, SessionView
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead
from topics.times import iso_time

PIECE: Final = 128
#: Memory for rendered windows.
CACHE_BYTES: Final = 16 * 1024 * 1024

_Sensitivities = tuple[tuple[str, int], ...]


class EventRenderer:
    """Renders windows of sessions, and caches the pieces read last."""

    def __init__(self, sessions: Sessions, capacity: int = CACHE_BYTES) -> None:
        self.sessions = sessions
        self._pieces: LRUCache[tuple[str, int, int], bytes] = LRUCache(capacity, getsizeof=len)
        self._window_renderer = lru_cache(maxsize=256)(self._new_window_renderer)

    def events(self, session: str, opened: Opened, first: int, end: int) -> bytes:
        """Return windows [first, end), which must exist, as SenseEvent objects with commas between.

        Raises:
            Unavailable: some windows are not here.
        """
        pieces = []
        while first < end:
            stop = min(end, first - first % PIECE + PIECE)
            key = session, first, stop
            try:
                piece = self._pieces[key]
            except KeyError:
                piece = self._rendered(session, opened, first, stop)
                with suppress(ValueError):  # it is larger than the whole cache
                    self._pieces[key] = piece
            pieces.append(piece)
            first = stop
        return pieces[0] if len(pieces) == 1 else b",".join(pieces)

    def scored(self, session: str, opened: Opened, first: int, stop: int) -> Iterator[tuple[WindowRenderer, bytes]]:
        """Yield packed scores of windows [first, stop), several windows at a time, with their renderer.

        Raises:
            Unavailable: some windows are not here.
        """
        sensitivities = tuple(sorted(opened.tags_sensitivity.items()))
        for windows in self.sessions.windows(session, first, stop - first):
            renderer = self._window_renderer(windows.model, opened.default_sensitivity, sensitivities)
            yield renderer, windows.scores
            first += len(windows.scores) // renderer.width
        if first < stop:
            raise Unavailable("the session's results are not all here yet")

    def captured_at(self, session: str, head: SessionHead | None, position_ms: int) -> str | UnsetType:
        """Return when the audio at a position was captured, if a client of the session told times."""
        if head is None or head.anchor is None or not head.anchor.told:
            return UNSET
        captured = self.sessions.time_of(session, position_ms)
        return iso_time(captured.at_ms) if captured.told else UNSET

    def _rendered(self, session: str, opened: Opened, first: int, stop: int) -> bytes:
        geometry, events = opened.geometry, list[SenseEvent]()
        for renderer, scores in self.scored(session, opened, first, stop):
            for tags in renderer.reported_tags(scores):
                events.append(renderer.event(SenseEvent, geometry, first + len(events), tags))
        return encode(events)[1:-1]

    def _new_window_renderer(self, model: str, default: int, sensitivities: _Sensitivities) -> WindowRenderer:
        return WindowRenderer(self.sessions.tags(model), default, dict(sensitivities))


def check_known(view: SessionView, windows: int) -> None:
    """Raise Unavailable if a stand-by lacks some of the windows that a reader may have seen."""
    if view.standby and not view.head.ended and windows > readable_windows(view):
        raise Unavailable("the stand-by does not have these windows")


def readable_windows(view: SessionView) -> int:
    """Return how many windows clients may see.

    Some clients cannot read an empty last page. So the last window of a file is hidden until the file's end was
    analysed: then the page without a token is never empty after a non-empty page.
    """
    head = view.head
    if head.kind == "file" and not head.finished:
        return max(0, head.windows - 1)
    return head.windows
