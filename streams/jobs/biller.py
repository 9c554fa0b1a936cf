"""The biller: writes what services cost to the ledger, then says so on the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from streams.folding import retry
from streams.jobs.run_context import StoreOf
from topics.errors import DirectoryDown, Unavailable
from topics.jobs.records import Accepted, Billed
from topics.jobs.rules import JobHead
from topics.ports.ledger import Charge, Ledger, MeteredService

log = structlog.get_logger(__name__)

#: A ledger that does not answer is asked again after pauses that grow up to this.
LONGEST_PAUSE_SECONDS: Final = 30.0

#: Append a result of a job to the result topic; returns once it is durable.
Emit = Callable[[str, Billed], Awaitable[None]]


class Biller:
    """Takes jobs one after another; which of their services are to be billed stands in the rows."""

    def __init__(self, store_of: StoreOf, ledger: Ledger | None, emit: Emit) -> None:
        self.store_of = store_of
        self.ledger = ledger
        self.emit = emit
        self._jobs: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start; `ended` is called with the task when it ends."""
        self._task = asyncio.create_task(self._run(), name="biller")
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """Stop; what is not billed yet is found again in the rows."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def enqueue(self, job: str) -> None:
        """Services of a job are to be billed."""
        self._jobs[job] = None
        self._wake.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            while not self._jobs:
                self._wake.clear()
                await self._wake.wait()
            job = next(iter(self._jobs))
            del self._jobs[job]
            if await self._bill(job):
                failures = 0
                continue
            self._jobs[job] = None
            failures += 1
            await asyncio.sleep(retry.pause(failures, LONGEST_PAUSE_SECONDS))

    async def _bill(self, job: str) -> bool:
        """Bill a job; False when it has to be tried again."""
        try:
            store = self.store_of(job)
        except Unavailable:
            return True  # Its owner bills it.
        head, accepted = store.head(job), store.accepted(job)
        if head is None or accepted is None or not head.unbilled:
            return True
        try:
            if self.ledger is not None:
                await self.ledger.record(charges(job, head, accepted))
            await self.emit(job, Billed(tuple(entry.service for entry in head.unbilled)))
        except (DirectoryDown, Unavailable) as error:
            log.warning("billing.retry", job=job[:8], error=str(error.__cause__ or error))
            return False
        except Exception as error:
            log.error("billing.failed", job=job[:8], error=repr(error), exc_info=error)
            return False
        return True


def charges(job: str, head: JobHead, accepted: Accepted) -> list[Charge]:
    """Return the lines of the ledger for what is not billed of a job."""
    who = (accepted.project, accepted.organization)
    return [
        Charge(job, MeteredService(entry.service), *who, entry.audio_ms, entry.model, head.created)
        for entry in head.unbilled
    ]
