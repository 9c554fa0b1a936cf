"""The events of a session as one reader gets them: read from the rows, from a cursor on."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from msgspec import UNSET

from app.sessions.cursors import Place, cursor
from app.sessions.rendering import EventRenderer, readable_windows
from app.sessions.socket_messages import Change, encode, shown_state
from topics.geometry import Geometry
from topics.ports.live import SoundTap
from topics.ports.sessions import SessionView

WINDOW: Final = "window"
SESSION: Final = "session"
LEVEL: Final = "level"
#: What `events` may name.
TYPES: Final = (WINDOW, SESSION, LEVEL)
#: Item behind all that a window has.
LAST: Final = 999_999
#: Windows of one step: others get their turn in between.
STEP: Final = 64


class EventReader:
    """Reads the events of one session for one reader."""

    def __init__(self, renderer: EventRenderer, session: str, place: Place, wanted: Set[str]) -> None:
        """Begin at a place, with the wanted types."""
        self._renderer = renderer
        self._session = session
        self.place = place
        self._wanted = wanted
        #: There is nothing behind the place, and nothing will come.
        self.finished = False

    @property
    def cursor(self) -> str:
        return cursor(self._session, self.place)

    def skip_to_end(self, view: SessionView) -> None:
        """Begin with what comes next."""
        total = readable_windows(view)
        self.place = total, LAST if view.head.ended else 0

    def more(self, view: SessionView) -> bool:
        """Tell whether a further step has something to do."""
        return self.place[0] < readable_windows(view) or (view.head.ended and not self.finished)

    def step(self, view: SessionView, tap: SoundTap | None) -> list[bytes]:
        """Return what comes next, some of it; nothing where all that is there was read.

        Levels are those of a reader that keeps up.

        Raises:
            Unavailable: the windows are not all here.
        """
        total = readable_windows(view)
        texts: list[bytes] = []
        if (behind := total - self.place[0]) > 0:
            texts = self._windows(view, min(total, self.place[0] + STEP), tap if behind <= STEP else None)
        if view.head.ended and self.place[0] >= total and not self.finished:
            texts += self._end(view, total)
        return texts

    def _windows(self, view: SessionView, stop: int, tap: SoundTap | None) -> list[bytes]:
        texts: list[bytes] = []
        geometry = Geometry(view.opened.window_ms, view.opened.hop_ms)
        number, skipped = self.place
        for renderer, packed in self._renderer.scored(self._session, view.opened, number, stop):
            for tags in renderer.tags(packed) if WINDOW in self._wanted else [b""] * (len(packed) // renderer.width):
                start, end = (repr(second).encode("ascii") for second in geometry.bounds(number))
                if WINDOW in self._wanted and not skipped:
                    texts.append(
                        b'{"type":"window","cursor":"%s","window":%d,"start_time":%s,"end_time":%s,"tags":[%s]}'
                        % (cursor(self._session, (number, 1)).encode("ascii"), number, start, end, tags)
                    )
                if tap is not None and (sound := tap.window(self._session, number)) is not None:
                    texts.append(
                        b'{"type":"level","start_time":%s,"end_time":%s,"rms":%s,"peak":%s}'
                        % (start, end, repr(sound.rms).encode("ascii"), repr(sound.peak).encode("ascii"))
                    )
                number, skipped = number + 1, 0
        self.place = number, 0
        return texts

    def _end(self, view: SessionView, total: int) -> list[bytes]:
        first, skipped = self.place
        self.finished = True
        if first > total:
            return []
        self.place = total, max(1, skipped)
        if SESSION not in self._wanted or skipped:
            return []
        error = UNSET if view.head.error is None else view.head.error
        return [encode(Change(self.cursor, shown_state(view.head.state), error))]
