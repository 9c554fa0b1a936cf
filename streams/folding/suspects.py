"""What was in work when a process died: it is tried again with care, and counted on the log.

A suspect was unfinished when its partition came, after the death of its owner as a rule. That it is tried is put on the
log before; what had been counted so already runs with no other suspect beside it, so that nothing that is innocent is
counted three times with the guilty. What is no suspect costs nothing and waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager


class Suspects:
    """The suspects of a node, and whose turn it is.

    Loop only. Sessions come first: their steps take milliseconds, and live audio waits for them. Services of jobs,
    which may take minutes, begin when no session is suspected any more.
    """

    def __init__(self) -> None:
        self._sessions: set[str] = set()
        #: Suspected sessions that are being analysed, and whether that is one which was counted before.
        self._at_work = 0
        self._alone = False
        #: A suspected service of a job runs.
        self._job_at_work = False
        self._changed = asyncio.Event()

    def add(self, sessions: Iterable[str]) -> None:
        self._sessions.update(sessions)

    def __contains__(self, session: str) -> bool:
        return session in self._sessions

    def clear(self, session: str) -> None:
        """Suspect a session no longer: it did no harm, or is gone; allowed for any."""
        if session in self._sessions:
            self._sessions.discard(session)
            self._note_change()

    def has_turn(self, alone: bool) -> bool:
        """Return whether a suspected session need not wait for its turn."""
        return not self._alone and not (alone and self._at_work)

    @asynccontextmanager
    async def session_turn(self, alone: bool) -> AsyncGenerator[None, None]:
        """Wait for the turn of a suspected session, and hold it; `alone` with no other suspected session beside it."""
        await self._until(lambda: self.has_turn(alone))
        self._at_work += 1
        self._alone = alone
        try:
            yield
        finally:
            self._at_work -= 1
            self._alone = False
            self._note_change()

    @asynccontextmanager
    async def job_turn(self) -> AsyncGenerator[None, None]:
        """Wait for the turn of a suspected service of a job, and hold it, with no other suspect beside it."""
        await self._until(lambda: not self._job_at_work and not self._sessions)
        self._job_at_work = True
        try:
            yield
        finally:
            self._job_at_work = False
            self._note_change()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
