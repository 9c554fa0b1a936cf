"""The biller of sessions: writes the audio that was analysed to the ledger, then says so on the log.

Which windows are to be written stands in the rows. A line of the ledger is a step of a session: `METER_WINDOWS`
windows, or what is left of them at the end. Steps and their audio follow from the count of windows alone, so that a
step that is written again after a crash is the same line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from streams.folding import retry
from streams.sessions.metering import charges
from streams.sessions.store import SessionStore
from topics.errors import DirectoryDown, Unavailable
from topics.ports.ledger import Charge, Ledger
from topics.sessions.records import Metered

log = structlog.get_logger(__name__)

#: A ledger that does not answer is asked again after pauses that grow up to this.
LONGEST_PAUSE_SECONDS: Final = 30.0
#: Sessions whose lines are written in one transaction, and the pause after it, in which others gather.
BATCH: Final = 200
GATHER_SECONDS: Final = 0.2

#: Append a result of a session to the result topic; returns once it is durable.
Emit = Callable[[str, Metered], Awaitable[None]]
#: The store that holds a session now; raises Unavailable when its partition is elsewhere.
StoreOf = Callable[[str], SessionStore]


class SessionBiller:
    """Takes sessions some at a time; what is to be billed of them stands in the rows."""

    def __init__(self, store_of: StoreOf, ledger: Ledger | None, emit: Emit) -> None:
        self.store_of = store_of
        self.ledger = ledger
        self.emit = emit
        self._sessions: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start; `ended` is called with the task when it ends."""
        self._task = asyncio.create_task(self._run(), name="session-biller")
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """Stop; what is not billed yet is found again in the rows."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def enqueue(self, session: str) -> None:
        """Windows of a session are to be billed."""
        self._sessions[session] = None
        self._wake.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            while not self._sessions:
                self._wake.clear()
                await self._wake.wait()
            batch = list(self._sessions)[:BATCH]
            for session in batch:
                del self._sessions[session]
            if await self._bill(batch):
                failures = 0
                await asyncio.sleep(GATHER_SECONDS)
                continue
            self._sessions.update(dict.fromkeys(batch))
            failures += 1
            await asyncio.sleep(retry.pause(failures, LONGEST_PAUSE_SECONDS))

    async def _bill(self, sessions: list[str]) -> bool:
        """Bill sessions; False when it has to be tried again."""
        lines: list[Charge] = []
        metered: dict[str, Metered] = {}
        for session in sessions:
            try:
                store = self.store_of(session)
            except Unavailable:
                continue  # Its owner bills it.
            head, opened = store.head(session), store.opened(session)
            if head is not None and opened is not None and head.metered is not None and head.unmetered:
                metered[session] = Metered(head.meterable, bool(head.predicts))
                lines += charges(session, opened, metered[session], head.metered)
        try:
            if self.ledger is not None and lines:
                await self.ledger.record(lines)
            await asyncio.gather(*(self.emit(session, result) for session, result in metered.items()))
        except (DirectoryDown, Unavailable) as error:
            log.warning("metering.retry", sessions=len(metered), error=str(error.__cause__ or error))
            return False
        except Exception as error:
            log.error("metering.failed", sessions=len(metered), error=repr(error), exc_info=error)
            return False
        return True
