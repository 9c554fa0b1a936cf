"""The partitions this node owns: their stores, and whether they have caught up with the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import structlog

from streams.folding.store import HeadStore, PartitionTable
from streams.jobs.store import JobStore
from streams.sessions.store import SessionStore
from topics.catalog import CHANGELOG, COMMANDS, FOLD_ORDER, PARKED, TopicPartition
from topics.errors import Unavailable
from topics.keys import new_id, partition_of

log = structlog.get_logger(__name__)

#: A node that waits for the fold logs what is missing this often.
REPORT_SECONDS: Final = 10.0


S = TypeVar("S", bound=HeadStore[Any])


class Stores(Generic[S]):
    """The sessions, or the jobs, of each owned partition."""

    def __init__(self, partitions: OwnedPartitions, kind: Callable[[PartitionTable], S]) -> None:
        """Open nothing yet; `kind` makes a store of the rows of a partition."""
        self._partitions = partitions
        self._kind = kind
        self._stores: dict[int, S] = {}

    def of_partition(self, partition: int) -> S:
        """Return the store of an owned partition, ready or not.

        Raises:
            Unavailable: the partition is not open here.
        """
        store = self._stores.get(partition)
        if store is None:
            rows = self._partitions.application.row_table.rows(partition)
            store = self._stores[partition] = self._kind(rows)
        return store

    def serving(self, id: str) -> S:
        """Return the store that serves an id.

        Raises:
            Unavailable: its partition has no ready owner here.
        """
        return self.of_partition(self._partitions.serving_partition(id))

    def all_serving(self) -> Iterable[S]:
        """Return the stores of all owned partitions, none while they are not ready."""
        partitions = self._partitions
        return [self.of_partition(partition) for partition in partitions.assigned()] if partitions.ready else []

    def clear(self) -> None:
        """Close all stores: what they have cached may be behind when their partitions come back."""
        self._stores.clear()


class OwnedPartitions:
    """The partitions of this node; one serves once it has folded all that was in the log when it came.

    Without that wait a session that was deleted just before a crash would be seen again while its deletion is still
    to be replayed.
    """

    def __init__(self, application: Any, count: int, alone: bool = False) -> None:
        """Own none of `count` partitions yet; `alone`: no other node can own one."""
        self.application = application
        self._count = count
        self.ready = False
        self._alone = alone
        self.sessions = Stores(self, SessionStore)
        self.jobs = Stores(self, JobStore)
        #: Partitions that serve.
        self._serving: frozenset[int] = frozenset()
        self._url = str(application.conf.canonical_url)
        self._folded: dict[TopicPartition, int] = {}
        self._progress = asyncio.Event()

    # --- owners -----------------------------------------------------------------------------------------------------

    def serving_partition(self, id: str) -> int:
        """Return the partition of an id.

        Raises:
            Unavailable: it has no ready owner here.
        """
        partition = partition_of(id, self._count)
        # Its table may be open here all the same, as a stand-by of another node's.
        if not self.ready or partition not in self._serving:
            raise Unavailable(f"partition {partition} has no ready owner here")
        return partition

    def owner_url(self, id: str) -> str | None:
        """Return the URL of another node that owns an id's partition, as of the last assignment."""
        if self._alone:
            return None
        partition = partition_of(id, self._count)
        if partition in self._serving:
            return None
        for url, topics in self.application.assignor.tables_metadata().items():
            if partition in topics.get(CHANGELOG, ()):
                return None if str(url) == self._url else str(url)
        return None

    def new_id(self) -> str:
        """Return a new id in a partition that this node serves: its work is done where it was requested.

        Raises:
            Unavailable: it serves none.
        """
        if not self._serving:
            raise Unavailable("this node has no partitions yet")
        while partition_of(id := new_id(), self._count) not in self._serving:
            pass
        return id

    def assigned(self) -> list[int]:
        """Return the partitions of the last assignment, ready or not."""
        return sorted(tp.partition for tp in self.application.consumer.assignment() if tp.topic == COMMANDS)

    # --- life -------------------------------------------------------------------------------------------------------

    def note_folded(self, topic: str, partition: int, following: int) -> None:
        """An agent has folded everything below `following`."""
        self._folded[TopicPartition(topic, partition)] = following
        if not self.ready:
            self._progress.set()

    def lose(self) -> None:
        """A rebalance began: serve nothing until the next one of `catch_up`."""
        self.ready = False
        self._serving = frozenset()
        self.sessions.clear()
        self.jobs.clear()
        self._folded.clear()

    async def catch_up(self, survey: Callable[[], Awaitable[None]]) -> None:
        """Wait until all that is in the log now is folded, run `survey`, and begin to serve.

        To be cancelled when the next rebalance begins.
        """
        consumer = self.application.consumer
        tps = [tp for tp in consumer.assignment() if tp.topic in PARKED]
        ends = await consumer.highwaters(*tps) if tps else {}
        earliest = await consumer.earliest_offsets(*tps) if tps else {}
        ranges = {}
        for tp, end in ends.items():
            # A partition where nothing was committed begins at the first record that its retention has left.
            begin = max(consumer.start_offset(tp), earliest[tp] or 0)
            ranges[TopicPartition(*tp)] = begin, end or 0
        for topics in FOLD_ORDER:
            consumer.resume_streams(topics)
            await self._wait_until_folded({tp: offsets for tp, offsets in ranges.items() if tp.topic in topics})
        await survey()
        self._serving = frozenset(self.assigned())
        self.ready = True

    async def _wait_until_folded(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Wait until each partition is folded from the first offset of its range up to the second."""
        due = asyncio.get_running_loop().time() + REPORT_SECONDS
        while behind := [
            (tp, folded, end) for tp, (begin, end) in ranges.items() if (folded := self._folded.get(tp, begin)) < end
        ]:
            self._progress.clear()
            try:
                async with asyncio.timeout_at(due):
                    await self._progress.wait()
            except TimeoutError:
                progress = {f"{tp.topic}/{tp.partition}": f"{folded} of {end}" for tp, folded, end in behind}
                log.warning("node.waiting", folded=progress)
                due += REPORT_SECONDS
