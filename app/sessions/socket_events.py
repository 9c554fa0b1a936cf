"""The events of a session for one reader, read from the rows after a cursor."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Set
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from app.sessions.cursors import Place, cursor, next_window
from app.sessions.rendering import EventRenderer, readable_windows
from app.sessions.socket_messages import (
    EVENTS,
    SOUND_EVENTS,
    SOURCE_EVENTS,
    Change,
    Loudness,
    State,
    Window,
    name_of,
    shown_state,
)
from app.windows import ReportedTag, WindowRenderer, encode
from topics.errors import BadRequest
from topics.geometry import seconds
from topics.ports.live import SoundTap
from topics.ports.sessions import SessionView
from topics.sessions.capture import SourceNote
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead
from topics.sessions.sounds import Heard, SoundTracker
from topics.times import iso_time

#: Allowed values in `events`.
TYPES: Final = tuple(name_of(kind) for kind in EVENTS)
WINDOW, LEVEL, SESSION = name_of(Window), name_of(Loudness), name_of(Change)
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
    renderer: WindowRenderer
    tags: list[ReportedTag]

    def take(self, tracker: SoundTracker) -> list[Heard]:
        """Return the sounds that start or end with it."""
        reported = [(tag.name, tag.probability) for tag in self.renderer.named(self.tags)]
        return tracker.take(self.number, self.start_ms, self.end_ms, reported)


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
        self._named = named
        self.place = place
        self._wanted = wanted
        self._sounds = SoundTracker(opened.rules) if wanted & SOUND_EVENTS.keys() else None
        #: Windows [from, to) before the place, which are read to find the sounds that are on; None once they are known.
        self._looking: tuple[int, int] | None = None
        #: True if nothing before the place has to be read.
        self.known = self._sounds is None
        self._quiet = 0
        #: The number of the next note of the source; None before it is known, or if none is wanted.
        self._note: int | None = None
        #: As of the last step.
        self._head: SessionHead | None = None
        #: Nothing follows the place, and nothing will come.
        self.finished = False

    @property
    def cursor(self) -> str:
        return cursor(self._session, *self.place)

    @property
    def tells_levels(self) -> bool:
        return LEVEL in self._wanted

    @property
    def comes_with_windows(self) -> bool:
        """True if every analysed window causes events."""
        return WINDOW in self._wanted

    def skip_to_end(self, view: SessionView) -> None:
        """Begin with what comes next."""
        self.place = Place(readable_windows(view), LAST if view.head.ended else 0)
        self.skip_notes(view)

    def skip_notes(self, view: SessionView) -> None:
        """Leave out the notes of the source that come right before the window of the place."""
        if self._wants_notes and not self.place.item:
            self._note = view.head.heard
            self.place = Place(self.place.window, 0, view.head.heard - self._first_note(view, self.place.window))

    def more(self, view: SessionView) -> bool:
        """Return True if a further step has something to do."""
        waits = self.place.window < readable_windows(view) or (view.head.ended and not self.finished)
        return waits or not self.known or self._has_notes(view)

    def step(self, view: SessionView, tap: SoundTap | None) -> list[Event]:
        """Return some of the next events; empty if everything stored was read.

        Levels exist only for a reader that keeps up.

        Raises:
            Unavailable: some windows are not here.
        """
        total, self._head = readable_windows(view), view.head
        if self._sounds is not None:
            self._sounds.rules = view.opened.rules
        if not self.known:
            self._look_back(view, min(self.place.window, total))
            return []
        events: list[Event] = []
        behind, stop = total - self.place.window, min(total, self.place.window + STEP)
        notes = deque[SourceNote]()
        if self._has_notes(view):
            notes, stop = self._next_notes(view, stop)
        if stop > self.place.window:
            events += self._windows(view, stop, tap if behind <= STEP else None, notes)
        events += self._noted(notes, self.place.window)
        if view.head.ended and self.place.window >= total and not (self.finished or self._has_notes(view)):
            events += self._end(view, total)
        return events

    # --- what is on -------------------------------------------------------------------------------------------------

    def _look_back(self, view: SessionView, place: int) -> None:
        """Find the sounds on before a window, in steps: back until no state is carried over, then forward."""
        assert self._sounds is not None
        first, stop = self._looking or (place, place)
        horizon = self._sounds.horizon(view.opened.hop_ms)
        if first > 0 and self._quiet < horizon:
            for one in reversed(list(self._scored(view, max(0, first - LOOK_BACK), first))):
                self._quiet, first = 0 if one.tags else self._quiet + 1, one.number
                if self._quiet >= horizon:
                    break
            self._looking = first, stop
            return
        self._quiet = horizon
        end = min(stop, first + LOOK_BACK)
        for one in self._scored(view, first, end):
            one.take(self._sounds)
        self._looking, self.known = (end, stop), end >= stop

    def _scored(self, view: SessionView, first: int, stop: int) -> Iterator[_Scored]:
        opened, number = view.opened, first
        if first >= stop:
            return
        for renderer, packed in self._renderer.scored(self._session, opened, first, stop):
            for tags in renderer.reported_tags(packed):
                start = number * opened.hop_ms
                yield _Scored(number, start, start + opened.window_ms, renderer, tags)
                number += 1

    # --- events -----------------------------------------------------------------------------------------------------

    def _windows(self, view: SessionView, stop: int, tap: SoundTap | None, notes: deque[SourceNote]) -> list[Event]:
        events: list[Event] = []
        number, skipped, _ = self.place
        geometry = view.opened.geometry
        for one in self._scored(view, number, stop):
            if notes:
                events += self._noted(notes, one.number)
            if WINDOW in self._wanted and not skipped:
                at = cursor(self._session, one.number, 1)
                captured = self._renderer.captured_at(self._session, view.head, one.start_ms)
                kind = partial(Window, cursor=at, window=one.number, captured_at=captured)
                window = one.renderer.event(kind, geometry, one.number, one.tags)
                events.append(Event(WINDOW, at, encode(window)))
            if self._sounds is not None:
                events += self._heard(one.number, one.take(self._sounds), skipped)
            if tap is not None and (sound := tap.window(self._session, one.number)) is not None:
                level = Loudness(seconds(one.start_ms), seconds(one.end_ms), sound.rms, sound.peak)
                events.append(Event(LEVEL, None, encode(level)))
            skipped = 0
        self.place = Place(stop)
        return events

    def _heard(self, number: int, heard: list[Heard], skipped: int) -> Iterator[Event]:
        for item, sound in enumerate(heard, 1):
            if sound.event in self._wanted and item >= skipped:
                yield self._sound(cursor(self._session, number, item + 1), sound)

    def _sound(self, at: str, sound: Heard) -> Event:
        facts: dict[str, Any] = {
            "cursor": at,
            "session_id": self._session if self._named else UNSET,
            "name": sound.name,
            "start_time": seconds(sound.start_ms),
            "end_time": seconds(sound.end_ms),
            "probability": sound.probability,
            "captured_at": self._renderer.captured_at(self._session, self._head, sound.start_ms),
        }
        kind = SOUND_EVENTS[sound.event]
        return Event(sound.event, at, encode(kind(**{field: facts[field] for field in kind.__struct_fields__})))

    def _end(self, view: SessionView, total: int) -> list[Event]:
        """Return the events after the last window: the change of state, and the ends of sounds."""
        first, skipped, _ = self.place
        if first > total:
            self.finished = True
            return []
        return list(self._close(total, skipped, shown_state(view.head.state), view.head.error))

    def gone(self) -> list[Event]:
        """Return the last events of a session that was deleted: the change of state, and the ends of sounds."""
        self._head = None
        return [] if self.finished else list(self._close(next_window(self.place), 0, "deleted", None))

    # --- notes of the source ----------------------------------------------------------------------------------------

    @property
    def _wants_notes(self) -> bool:
        return not self._wanted.isdisjoint(SOURCE_EVENTS)

    def _has_notes(self, view: SessionView) -> bool:
        return view.head.heard > 0 and self._wants_notes and self._note != view.head.heard

    def _first_note(self, view: SessionView, window: int) -> int:
        """Return the number of the first note that comes right before a window, or later."""

        def window_of(number: int) -> int:
            return self._renderer.sessions.notes(self._session, number, number + 1)[0].window

        return bisect_left(range(view.head.heard), window, key=window_of)

    def _next_notes(self, view: SessionView, stop: int) -> tuple[deque[SourceNote], int]:
        """Return the next notes up to those right before the window `stop`, or before an earlier one if many follow."""
        if self._note is None:
            self._note = self._first_note(view, next_window(self.place)) + self.place.notes
        found = self._renderer.sessions.notes(self._session, self._note, min(view.head.heard, self._note + STEP))
        if len(found) == STEP:
            stop = min(stop, found[-1].window)
        return deque(note for note in found if note.window <= stop), stop

    def _noted(self, notes: deque[SourceNote], window: int) -> Iterator[Event]:
        """Take the notes that come before a window."""
        while notes and notes[0].window <= window:
            note = notes.popleft()
            before = self.place.notes if self.place.window == note.window else 0
            self.place, self._note = Place(note.window, 0, before + 1), note.number + 1
            if note.event in self._wanted:
                at = self.cursor
                change = SOURCE_EVENTS[note.event](
                    cursor=at,
                    session_id=self._session if self._named else UNSET,
                    time=iso_time(note.at_ms),
                    told=note.told,
                    reason=note.reason or UNSET,
                )
                yield Event(note.event, at, encode(change))

    # --- the end ----------------------------------------------------------------------------------------------------

    def sounds_on(self) -> list[Event]:
        """Return the sounds that are on, as events that start them again, for a reader that did not see them start."""
        at = self.cursor
        return [] if self._sounds is None else [self._sound(at, sound) for sound in self._sounds.on()]

    def _close(self, number: int, skipped: int, state: State, error: str | None) -> Iterator[Event]:
        self.finished = True
        # Every reader learns why a session failed, except one that gets it with the state of its sessions.
        if not skipped and (SESSION in self._wanted or (error is not None and not self._named)):
            at = cursor(self._session, number, 1)
            yield Event(SESSION, at, encode(Change(at, state, UNSET if error is None else error)))
        rest = self._sounds.finish() if self._sounds is not None and self.known else []
        yield from self._heard(number, rest, skipped)
        self.place = Place(number, max(1 + len(rest), skipped))
