"""The queue of sessions with work, by ticks."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from faust import App

from streams.channel import WorkChannel
from topics.turns import Turns

#: Sessions of a tick: more than a worker scores at a time, and few enough that one waits little for the others.
TICK: Final = 8


class Place(NamedTuple):
    """Where a session's next step belongs."""

    project: str
    #: The worker whose ticks it may share, by number; None for a tick of its own.
    worker: int | None = None


class _Tick(NamedTuple):
    place: Place
    sessions: list[str]


class ReadySessions(WorkChannel[list[str]]):
    """Queues sessions with work: each once, in turn by project, one step of a session at a time. Loop only.

    What becomes ready before an actor is free is a tick, a worker's share of one project at a time: so no project waits
    for another's audio.
    """

    def __init__(self, app: App, place: Callable[[str], Place]) -> None:
        """`place` returns where a session's next step belongs."""
        super().__init__(app)
        self._place = place
        #: Sessions with work, and since when (monotonic seconds).
        self._waiting: dict[str, float] = {}
        self._turns: Turns[_Tick] = Turns()
        #: The last queued tick of each place.
        self._open: dict[Place, _Tick] = {}
        #: Sessions that an actor has, and since when their current work waited.
        self._running: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many sessions have work, including those that an actor has."""
        return len(self._waiting) + len(self._running)

    def add(self, session: str) -> None:
        if session not in self._waiting:
            self._waiting[session] = time.monotonic()
            self.queue_up(session)

    def discard(self, session: str) -> None:
        """Remove a session that may or may not have work."""
        self._waiting.pop(session, None)

    def take(self) -> list[str] | None:
        """Return the tick whose turn it is; call `done` for each of its sessions afterwards."""
        while (tick := self._turns.take()) is not None:
            if self._open.get(tick.place) is tick:
                del self._open[tick.place]
            taken = []
            for session in tick.sessions:
                # A session that was discarded and came back may be queued twice; `done` queues it again.
                if session not in self._running and (since := self._waiting.pop(session, None)) is not None:
                    self._running[session] = since
                    taken.append(session)
            if taken:
                return taken
        return None

    def done(self, session: str, pause: float | None) -> None:
        """End a step of a session; the next is due in `pause` seconds or, if None, when there is new work."""
        since = self._running.pop(session)
        if pause is not None:
            self._waiting[session] = since
        if not pause:
            self.queue_up(session)
        elif pause != math.inf:
            # No actor is blocked by the pause: others have work that may succeed.
            asyncio.get_running_loop().call_later(pause, self.queue_up, session)

    def queue_up(self, session: str) -> None:
        """Queue a session for its turn, if it has work and no actor has it."""
        if session not in self._waiting or session in self._running:
            return
        place = self._place(session)
        tick = None if place.worker is None else self._open.get(place)
        if tick is not None and len(tick.sessions) < TICK:
            tick.sessions.append(session)
            return
        tick = _Tick(place, [session])
        if place.worker is not None:
            self._open[place] = tick
        self._turns.put(place.project, tick)
        self.wake()

    def is_running(self, session: str) -> bool:
        return session in self._running

    def is_waiting(self, session: str) -> bool:
        """Return whether a session has work that no actor has taken."""
        return session in self._waiting

    def has(self, session: str) -> bool:
        """Return whether a session has work or is with an actor."""
        return session in self._waiting or session in self._running

    def waiting(self) -> Iterable[str]:
        """Return the sessions with work that no actor has taken."""
        return self._waiting

    def lag(self) -> float:
        """Return the age of the oldest work in seconds."""
        since = min((*self._waiting.values(), *self._running.values()), default=None)
        return 0.0 if since is None else time.monotonic() - since
