"""The sessions that have work."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable

from faust import App

from streams.channel import WorkChannel
from streams.turns import Turns


class ReadySessions(WorkChannel[str]):
    """The sessions that have work: each once, in turn by project; one step of a session at a time. Loop only."""

    def __init__(self, app: App, project: Callable[[str], str]) -> None:
        """Begin without any; `project` returns whose a session is."""
        super().__init__(app)
        self._project = project
        #: Sessions with work, and since when (monotonic seconds).
        self._waiting: dict[str, float] = {}
        self._turns: Turns[str] = Turns()
        #: Sessions that an actor has, and since when they had the work that is being done.
        self._running: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many sessions have work, those that an actor has included."""
        return len(self._waiting) + len(self._running)

    def add(self, session: str) -> None:
        if session not in self._waiting:
            self._waiting[session] = time.monotonic()
            self.queue_up(session)

    def discard(self, session: str) -> None:
        """There is no work in a session any more; allowed for any."""
        self._waiting.pop(session, None)

    def take(self) -> str | None:
        """Return the session whose turn it is; `done` must be called for it."""
        while (session := self._turns.take()) is not None:
            # One that was discarded and came back may be queued twice; the actor that has it queues it again.
            if session not in self._running and (since := self._waiting.pop(session, None)) is not None:
                self._running[session] = since
                return session
        return None

    def done(self, session: str, pause: float | None) -> None:
        """A step of a session has ended; the next is due in `pause` seconds, or, if None, when there is new work."""
        since = self._running.pop(session)
        if pause is not None:
            self._waiting[session] = since
        if not pause:
            self.queue_up(session)
        elif pause != math.inf:
            # No actor waits with it: others have work that may succeed.
            asyncio.get_running_loop().call_later(pause, self.queue_up, session)

    def queue_up(self, session: str) -> None:
        """Let a session wait for its turn, if it has work and no actor has it."""
        if session in self._waiting and session not in self._running:
            self._turns.put(self._project(session), session)
            self.wake()

    def is_running(self, session: str) -> bool:
        return session in self._running

    def is_waiting(self, session: str) -> bool:
        """Return whether a session has work that no actor has."""
        return session in self._waiting

    def has(self, session: str) -> bool:
        """Return whether a session has work, or an actor has it."""
        return session in self._waiting or session in self._running

    def waiting(self) -> Iterable[str]:
        """Return the sessions that have work that no actor has."""
        return self._waiting

    def lag(self) -> float:
        """Return for how many seconds the oldest work has been waiting."""
        since = min((*self._waiting.values(), *self._running.values()), default=None)
        return 0.0 if since is None else time.monotonic() - since
