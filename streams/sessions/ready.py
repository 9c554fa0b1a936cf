"""The queue of sessions with work."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable

from faust import App

from streams.channel import WorkChannel
from topics.turns import Turns


class ReadySessions(WorkChannel[str]):
    """Queues sessions with work: each once, in turn by project, one step of a session at a time. Loop only."""

    def __init__(self, app: App, project: Callable[[str], str]) -> None:
        """`project` returns the project of a session."""
        super().__init__(app)
        self._project = project
        #: Sessions with work, and since when (monotonic seconds).
        self._waiting: dict[str, float] = {}
        self._turns: Turns[str] = Turns()
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

    def take(self) -> str | None:
        """Return the session whose turn it is; call `done` for it afterwards."""
        while (session := self._turns.take()) is not None:
            # A session that was discarded and came back may be queued twice; `done` queues it again.
            if session not in self._running and (since := self._waiting.pop(session, None)) is not None:
                self._running[session] = since
                return session
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
        if session in self._waiting and session not in self._running:
            self._turns.put(self._project(session), session)
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
