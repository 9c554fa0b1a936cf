"""Bills what was analysed: lines into the ledger, then a result on the log; what is due stands in the rows."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ClassVar, Final, Generic, TypeVar

import structlog

from streams.folding import retry
from topics.errors import DirectoryDown, Unavailable
from topics.ports.ledger import Charge, Ledger

S = TypeVar("S")
R = TypeVar("R")

log = structlog.get_logger(__name__)

#: A ledger that does not answer is asked again after pauses that grow up to this.
LONGEST_PAUSE_SECONDS: Final = 30.0


class Biller(ABC, Generic[S, R]):
    """Takes sessions or jobs in the order in which they were enqueued, some at a time."""

    #: Begins the names of its lines in the log.
    activity: ClassVar[str]
    #: How many are billed in one transaction of the ledger.
    batch: ClassVar[int] = 1

    def __init__(
        self, store_of: Callable[[str], S], ledger: Ledger | None, emit: Callable[[str, R], Awaitable[None]]
    ) -> None:
        """Bill to `ledger`, if there is one.

        `store_of` returns the store that holds an id, and raises Unavailable when its partition is elsewhere; `emit`
        appends to the result topic, and returns once that is durable.
        """
        self.store_of = store_of
        self.ledger = ledger
        self.emit = emit
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start; `ended` is called with the task when it ends."""
        self._task = asyncio.create_task(self._run(), name=self.activity)
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """Stop; what is not billed yet is found again in the rows."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def enqueue(self, id: str) -> None:
        """Something of a session or job is to be billed."""
        self._waiting[id] = None
        self._wake.set()

    @abstractmethod
    def due(self, id: str, store: S) -> tuple[Iterable[Charge], R] | None:
        """Return the lines of what is not billed, and the result that says that it is; None where all is."""

    @abstractmethod
    def named(self, billed: Mapping[str, R]) -> dict[str, object]:
        """Return what a line of the log says of those that could not be billed."""

    async def gather_others(self) -> None:
        """Called after each batch that was billed."""

    async def _run(self) -> None:
        failures = 0
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch = list(self._waiting)[: self.batch]
            for id in batch:
                del self._waiting[id]
            if await self._bill(batch):
                failures = 0
                await self.gather_others()
                continue
            self._waiting.update(dict.fromkeys(batch))
            failures += 1
            await asyncio.sleep(retry.pause(failures, LONGEST_PAUSE_SECONDS))

    async def _bill(self, ids: list[str]) -> bool:
        """Bill some; False when it has to be tried again."""
        lines: list[Charge] = []
        billed: dict[str, R] = {}
        try:
            for id in ids:
                try:
                    store = self.store_of(id)
                except Unavailable:
                    continue  # Its owner bills it.
                if (due := self.due(id, store)) is not None:
                    lines += due[0]
                    billed[id] = due[1]
            if self.ledger is not None and lines:
                await self.ledger.record(lines)
            await asyncio.gather(*(self.emit(id, result) for id, result in billed.items()))
        except (DirectoryDown, Unavailable) as error:
            log.warning(f"{self.activity}.retry", **self.named(billed), error=str(error.__cause__ or error))
            return False
        except Exception as error:
            log.error(f"{self.activity}.failed", **self.named(billed), error=repr(error), exc_info=error)
            return False
        return True
