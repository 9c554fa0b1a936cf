"""The events of a session for one reader, read from the rows after a cursor."""

from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from msgspec import UNSET

from app.sessions.cursors import Place, cursor, next_window
from app.sessions.rendering import EventRenderer, readable_windows
from app.sessions.socket_messages import Change, State, encode, shown_state
from topics.errors import BadRequest
from topics.geometry import seconds
from topics.ports.live import SoundTap
from topics.ports.sessions import SessionView
from topics.sessions.records import Opened
from topics.sessions.sounds import Heard, SoundTracker

WINDOW: Final = "window"
SESSION: Final = "session"
LEVEL: Final = "level"
STARTED: Final = "sound.started"
ENDED: Final = "sound.ended"
SOUNDS: Final = frozenset({STARTED, ENDED})
#: Allowed values in `events`.
TYPES: Final = (WINDOW, STARTED, ENDED, LEVEL, SESSION)
#: Instead of types: no events.
NONE: Final = "none"
#: The item after all items of a window.
LAST: Final = 999_999
#: Windows per step; other tasks run in between.
STEP: Final = 64
#: Windows per step of a look-back, which emits no events.
LOOK_BACK: Final = 512


class Event(NamedTuple):
    """One event; without a cursor it is not replayed."""

    kind: str
    cursor: str | None
    text: bytes


def wanted_types(text: str) -> frozenset[str]:
    """Parse comma-separated event types.

    Raises:
        BadRequest: a type is unknown.
    """
    types = {name for name in text.split(",") if name}
    if unknown := sorted(types - {*TYPES, NONE}):
        raise BadRequest(f"events: {unknown[0][:40]!r} is not one of {', '.join((*TYPES, NONE))}")
    return frozenset() if NONE in types else frozenset(types)


class _Scored(NamedTuple):
    """A window as it is stored."""

    number: int
    start_ms: int
    end_ms: int
    #: JSON of its tags, if wanted.
    tags: bytes
    reported: list[tuple[str, float]]


class EventReader:
    def __init__(
        self,
        renderer: EventRenderer,
        session: str,
        opened: Opened,
        place: Place,
        wanted: Set[str],
        *,
        named: bool = False,
    ) -> None:
        """Begin at a place, with the wanted types; with `named`, events of sounds name their session."""
        self._renderer = renderer
        self._session = session
        self._name = {"session_id": session} if named else {}
        self.place = place
        self._wanted = wanted
        self._sounds = SoundTracker(opened.rules) if wanted & SOUNDS else None
        #: Windows [from, to) before the place, which are read to find the sounds that are on; None once they are known.
        self._looking: tuple[int, int] | None = None
        #: True if nothing before the place has to be read.
        self.known = self._sounds is None
        self._quiet = 0
        #: Nothing follows the place, and nothing will come.
        self.finished = False

    @property
    def cursor(self) -> str:
        return cursor(self._session, self.place)

    @property
    def tells_levels(self) -> bool:
        return LEVEL in self._wanted

    @property
    def comes_with_windows(self) -> bool:
        """True if every analysed window causes events."""
        return WINDOW in self._wanted

    def skip_to_end(self, view: SessionView) -> None:
        """Begin with what comes next."""
        total = readable_windows(view)
        self.place = total, LAST if view.head.ended else 0

    def more(self, view: SessionView) -> bool:
        """Return True if a further step has something to do."""
        waits = self.place[0] < readable_windows(view) or (view.head.ended and not self.finished)
        return waits or not self.known

    def step(self, view: SessionView, tap: SoundTap | None) -> list[Event]:
        """Return some of the next events; empty if everything stored was read.

        Levels exist only for a reader that keeps up.

        Raises:
            Unavailable: some windows are not here.
        """
        total = readable_windows(view)
        if self._sounds is not None:
            self._sounds.rules = view.opened.rules
        if not self.known:
            self._look_back(view, min(self.place[0], total))
            return []
        events: list[Event] = []
        if (behind := total - self.place[0]) > 0:
            events += self._windows(view, min(total, self.place[0] + STEP), tap if behind <= STEP else None)
        if view.head.ended and self.place[0] >= total and not self.finished:
            events += self._end(view, total)
        return events

    # --- what is on -------------------------------------------------------------------------------------------------

    def _look_back(self, view: SessionView, place: int) -> None:
        """Find the sounds on before a window, in steps: back until no state is carried over, then forward."""
        assert self._sounds is not None
        first, stop = self._looking or (place, place)
        horizon = self._sounds.horizon(view.opened.hop_ms)
        if first > 0 and self._quiet < horizon:
            for one in reversed(list(self._scored(view, max(0, first - LOOK_BACK), first, False))):
                self._quiet, first = 0 if one.reported else self._quiet + 1, one.number
                if self._quiet >= horizon:
                    break
            self._looking = first, stop
            return
        self._quiet = horizon
        end = min(stop, first + LOOK_BACK)
        for one in self._scored(view, first, end, False):
            self._sounds.take(one.number, one.start_ms, one.end_ms, one.reported)
        self._looking, self.known = (end, stop), end >= stop

    def _scored(self, view: SessionView, first: int, stop: int, with_tags: bool) -> Iterator[_Scored]:
        opened = view.opened
        geometry, number = opened.geometry, first
        if first >= stop:
            return
        for renderer, packed in self._renderer.scored(self._session, opened, first, stop):
            reported = renderer.reported_tags(packed)
            tags = renderer.tags(packed) if with_tags else [b""] * len(reported)
            for found, text in zip(reported, tags, strict=True):
                start, end = (round(1000 * second) for second in geometry.bounds(number))
                wanted = found if self._sounds is not None else []
                named = [(renderer.names[tag[1]], renderer.probability_of(tag)) for tag in wanted]
                yield _Scored(number, start, end, text, named)
                number += 1

    # --- events -----------------------------------------------------------------------------------------------------

    def _windows(self, view: SessionView, stop: int, tap: SoundTap | None) -> list[Event]:
        events: list[Event] = []
        number, skipped = self.place
        for one in self._scored(view, number, stop, WINDOW in self._wanted):
            start, end = seconds(one.start_ms), seconds(one.end_ms)
            if WINDOW in self._wanted and not skipped:
                at = cursor(self._session, (one.number, 1))
                text = b'{"type":"window","cursor":"%s","window":%d,"start_time":%a,"end_time":%a,"tags":[%s]}' % (
                    at.encode("ascii"), one.number, start, end, one.tags,
                )  # fmt: skip
                events.append(Event(WINDOW, at, text))
            if self._sounds is not None:
                heard = self._sounds.take(one.number, one.start_ms, one.end_ms, one.reported)
                events += self._heard(one.number, heard, skipped)
            if tap is not None and (sound := tap.window(self._session, one.number)) is not None:
                text = b'{"type":"level","start_time":%a,"end_time":%a,"rms":%a,"peak":%a}' % (
                    start, end, sound.rms, sound.peak,
                )  # fmt: skip
                events.append(Event(LEVEL, None, text))
            skipped = 0
        self.place = stop, 0
        return events

    def _heard(self, number: int, heard: list[Heard], skipped: int) -> Iterator[Event]:
        for item, sound in enumerate(heard, 1):
            kind = STARTED if sound.is_on else ENDED
            if kind not in self._wanted or item < skipped:
                continue
            yield self._sound(cursor(self._session, (number, item + 1)), sound)

    def _sound(self, at: str, sound: Heard) -> Event:
        kind = STARTED if sound.is_on else ENDED
        fields: dict[str, object] = {"type": kind, "cursor": at, **self._name, "name": sound.name}
        fields["start_time"] = seconds(sound.start_ms)
        if not sound.is_on:
            fields["end_time"] = seconds(sound.end_ms)
        return Event(kind, at, encode({**fields, "probability": sound.probability}))

    def _end(self, view: SessionView, total: int) -> list[Event]:
        """Return the events after the last window: the change of state, and the ends of sounds."""
        first, skipped = self.place
        if first > total:
            self.finished = True
            return []
        return list(self._close(total, skipped, shown_state(view.head.state), view.head.error))

    def gone(self) -> list[Event]:
        """Return the last events of a session that was deleted: the change of state, and the ends of sounds."""
        return [] if self.finished else list(self._close(next_window(self.place), 0, "deleted", None))

    def sounds_on(self) -> list[Event]:
        """Return the sounds that are on, as events that start them again, for a reader that did not see them start."""
        at = self.cursor
        return [] if self._sounds is None else [self._sound(at, sound) for sound in self._sounds.on()]

    def _close(self, number: int, skipped: int, state: State, error: str | None) -> Iterator[Event]:
        self.finished = True
        # Every reader learns why a session failed, except one that gets it with the state of its sessions.
        if not skipped and (SESSION in self._wanted or (error is not None and not self._name)):
            at = cursor(self._session, (number, 1))
            yield Event(SESSION, at, encode(Change(at, state, UNSET if error is None else error)))
        rest = self._sounds.finish() if self._sounds is not None and self.known else []
        yield from self._heard(number, rest, skipped)
        self.place = number, max(1 + len(rest), skipped)
