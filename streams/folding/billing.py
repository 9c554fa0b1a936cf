"""Bills analysed audio: writes lines to the ledger, then a result to the log. The rows determine what is due."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import ClassVar, Final, Generic, TypeVar

import structlog
from faust import App

from streams.channel import WorkChannel
from streams.folding import retry
from topics.errors import DirectoryDown, NotOwned, Unavailable
from topics.ports.ledger import Charge, Ledger

S = TypeVar("S")
R = TypeVar("R")

log = structlog.get_logger(__name__)

#: The longest pause between retries of a ledger that does not answer.
LONGEST_PAUSE_SECONDS: Final = 30.0


class Unbilled(WorkChannel[list[str]]):
    """Queues sessions or jobs to bill, each once; hands them out in batches, oldest first. Loop only."""

    def __init__(self, app: App, batch: int) -> None:
        super().__init__(app)
        self._batch = batch
        self._waiting: dict[str, None] = {}

    def add(self, ids: Iterable[str]) -> None:
        self._waiting.update(dict.fromkeys(ids))
        self.wake()

    def take(self) -> list[str] | None:
        batch = list(islice(self._waiting, self._batch))
        for id in batch:
            del self._waiting[id]
        return batch or None


class Biller(ABC, Generic[S, R]):
    """Bills sessions or jobs in batches, in the order of the queue; an agent calls it. Loop only."""

    #: The prefix of its event names in the service log.
    activity: ClassVar[str]
    batch: ClassVar[int] = 1

    def __init__(
        self, app: App, store_of: Callable[[str], S], ledger: Ledger | None, emit: Callable[[str, R], Awaitable[None]]
    ) -> None:
        """Bill to `ledger`, if there is one.

        `store_of` returns the store of an id; it raises NotOwned if another node owns the partition, and Unavailable
        while it is not served. `emit` appends to the log, and returns once the record is durable.
        """
        self.store_of = store_of
        self.ledger = ledger
        self.emit = emit
        self.ready = Unbilled(app, self.batch)
        self._failures = 0

    @abstractmethod
    def due(self, id: str, store: S) -> tuple[Iterable[Charge], R] | None:
        """Return the unbilled lines, and the result that records them as billed; None if everything is billed."""

    @abstractmethod
    def named(self, billed: Mapping[str, R]) -> dict[str, object]:
        """Return fields for the service log about ids that could not be billed."""

    async def gather_others(self) -> None:
        """Wait, if more ids should gather for the next batch. Called after each successful batch."""

    async def bill(self, ids: list[str]) -> None:
        """Bill some ids; requeue them behind all others and pause if that fails."""
        if await self._is_billed(ids):
            self._failures = 0
            await self.gather_others()
            return
        self.ready.add(ids)
        self._failures += 1
        await asyncio.sleep(retry.pause(self._failures, LONGEST_PAUSE_SECONDS))

    async def _is_billed(self, ids: list[str]) -> bool:
        lines: list[Charge] = []
        billed: dict[str, R] = {}
        try:
            for id in ids:
                try:
                    store = self.store_of(id)
                except NotOwned:
                    continue  # Its owner bills it.
                except Unavailable:
                    # This node may still own it, but has lost contact with the group for a moment.
                    asyncio.get_running_loop().call_later(retry.FIRST_SECONDS, self.ready.add, [id])
                    continue
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
