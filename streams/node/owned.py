"""The partitions this node owns: their stores, and whether they have caught up with the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import structlog

from streams.jobs.store import JobStore
from streams.sessions.store import SessionStore
from topics.catalog import CHANGELOG, COMMANDS, FOLD_ORDER, PARKED, TopicPartition
from topics.errors import Unavailable
from topics.keys import new_id, partition_of

log = structlog.get_logger(__name__)

#: Who waits for the fold says so this often.
TELL_SECONDS: Final = 10.0


class Owned:
    """Stores of owned partitions; a partition serves once it has folded all that was in the log when it came.

    Without that wait a session that was deleted just before a crash would be seen again while its deletion is still
    to be replayed.
    """

    def __init__(self, application: Any, partitions: int) -> None:
        self.application = application
        self.partitions = partitions
        self.ready = False
        self._stores: dict[int, SessionStore] = {}
        self._job_stores: dict[int, JobStore] = {}
        #: Partitions owned, once they serve.
        self._mine: frozenset[int] = frozenset()
        self._url = str(application.conf.canonical_url)
        self._folded: dict[TopicPartition, int] = {}
        self._moved = asyncio.Event()

    def store(self, partition: int) -> SessionStore:
        """Return the sessions of an owned partition, ready or not."""
        store = self._stores.get(partition)
        if store is None:
            store = self._stores[partition] = SessionStore(self.application.row_table.rows(partition))
        return store

    def job_store(self, partition: int) -> JobStore:
        """Return the jobs of an owned partition, ready or not."""
        store = self._job_stores.get(partition)
        if store is None:
            store = self._job_stores[partition] = JobStore(self.application.row_table.rows(partition))
        return store

    def serving(self, session: str) -> SessionStore:
        """Return the store that serves a session.

        Raises:
            Unavailable: its partition has no ready owner here.
        """
        return self.store(self._serving(session))

    def serving_job(self, job: str) -> JobStore:
        """Return the store that serves a job; errors as `serving`."""
        return self.job_store(self._serving(job))

    def _serving(self, name: str) -> int:
        partition = partition_of(name, self.partitions)
        # Its table may be open here all the same, as a stand-by of another node's.
        if not self.ready or partition not in self._mine:
            raise Unavailable(f"partition {partition} has no ready owner here")
        return partition

    def elsewhere(self, name: str) -> str | None:
        """Return the URL of another node that has an id's partition, as the last assignment told all members."""
        partition = partition_of(name, self.partitions)
        if partition in self._mine:
            return None
        for url, topics in self.application.assignor.tables_metadata().items():
            if partition in topics.get(CHANGELOG, ()):
                return None if str(url) == self._url else str(url)
        return None

    def new_id(self) -> str:
        """Return an id in a partition that this node owns, so that work begins where it is asked for.

        Raises:
            Unavailable: it owns none.
        """
        if not self._mine:
            raise Unavailable("this node has no partitions yet")
        while partition_of(name := new_id(), self.partitions) not in self._mine:
            pass
        return name

    def stores(self) -> Iterable[SessionStore]:
        """Return the sessions of all owned partitions, none while they are not ready."""
        return [self.store(partition) for partition in self.assigned()] if self.ready else []

    def job_stores(self) -> Iterable[JobStore]:
        """Return the jobs of all owned partitions, none while they are not ready."""
        return [self.job_store(partition) for partition in self.assigned()] if self.ready else []

    def assigned(self) -> list[int]:
        """Return the partitions of the last assignment, ready or not."""
        return sorted(tp.partition for tp in self.application.consumer.assignment() if tp.topic == COMMANDS)

    def folded(self, topic: str, partition: int, following: int) -> None:
        """An agent has folded everything below `following`."""
        self._folded[TopicPartition(topic, partition)] = following
        if not self.ready:
            self._moved.set()

    def lose(self) -> None:
        """A rebalance began: what is cached may be behind when the partitions come back."""
        self.ready = False
        self._mine = frozenset()
        self._stores.clear()
        self._job_stores.clear()
        self._folded.clear()

    async def catch_up(self, then: Callable[[], Awaitable[None]]) -> None:
        """Wait until all that is in the log now is folded, run `then`, and begin to serve.

        To be cancelled when the next rebalance begins.
        """
        consumer = self.application.consumer
        tps = [tp for tp in consumer.assignment() if tp.topic in PARKED]
        targets = await consumer.highwaters(*tps) if tps else {}
        earliest = await consumer.earliest_offsets(*tps) if tps else {}
        # A partition where nothing was committed begins at the first record that its retention has left.
        begun = {
            TopicPartition(*tp): max(consumer.start_offset(TopicPartition(*tp)), earliest[tp] or 0) for tp in targets
        }
        for topics in FOLD_ORDER:
            consumer.resume_streams(topics)
            await self._fold(
                {tp: (begun[TopicPartition(*tp)], end or 0) for tp, end in targets.items() if tp.topic in topics}
            )
        await then()
        self._mine = frozenset(self.assigned())
        self.ready = True

    async def _fold(self, targets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Wait until partitions that were begun at an offset each are folded up to another."""
        due = asyncio.get_running_loop().time() + TELL_SECONDS
        while behind := [
            (tp, folded, end)
            for tp, (begun, end) in targets.items()
            if (folded := self._folded.get(TopicPartition(*tp), begun)) < end
        ]:
            self._moved.clear()
            try:
                async with asyncio.timeout_at(due):
                    await self._moved.wait()
            except TimeoutError:
                told = {f"{tp.topic}/{tp.partition}": f"{folded} of {end}" for tp, folded, end in behind}
                log.warning("node.waiting", folded=told)
                due += TELL_SECONDS
