"""An in-memory log shared by several nodes, and folds that record what they fold."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streams.folding.draft import Draft
from streams.folding.fold import Fold
from streams.log import Ack, Apply, StoredRecord
from streams.node.owner import PartitionOwner
from streams.node.takeover import Takeover
from streams.tables.database import Databases
from streams.tables.tables import Tables
from topics.catalog import FOLDED, TopicPartition
from topics.errors import RecordError, Unavailable

POISON = b"poison"


class MemoryLog:
    """The part of `LogBackend` that a takeover uses, and its own writer."""

    follower = None
    exclusive = False
    name = b""

    def __init__(self) -> None:
        self.records: defaultdict[TopicPartition, list[StoredRecord]] = defaultdict(list)
        #: First readable offsets of partitions with deleted records.
        self.begins: dict[TopicPartition, int] = {}
        #: Raised once each, by the next requests for bounds and batches of a read; None lets one succeed.
        self.faults: list[Exception | None] = []
        #: Records of a batch.
        self.at_once = 1
        #: The offsets of all reads, (start, stop).
        self.asked: list[tuple[int, int]] = []
        self.writer: Any = self
        #: Number of requests for bounds.
        self.asks = 0
        #: Reads of these partitions wait.
        self.gates: dict[TopicPartition, asyncio.Event] = {}
        self.now = 1_700_000_000_000
        self.removed = 0
        #: Whether this node has written all that is in the changelogs it owns.
        self.acknowledged = True
        #: Why partitions are not whole.
        self.lost: dict[int, str] = {}

    def now_ms(self) -> int:
        return self.now

    log_ms = now_ms

    def topic_name(self, topic: str) -> str:
        return topic

    # --- writing ----------------------------------------------------------------------------------------------------

    def add(self, topic: str, partition: int, key: bytes, value: bytes | None, epoch: int = 0) -> int:
        """Append a record; return its offset."""
        tp = TopicPartition(topic, partition)
        self.records[tp].append(StoredRecord(self.end(tp), 0, key, value, epoch))
        return self.end(tp) - 1

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes,
        value: bytes | None,
        *,
        bounded: bool = True,
        epoch: int = 0,
        project: str = "",
        content: object = None,
    ) -> asyncio.Future[Ack]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ack] = loop.create_future()
        loop.call_soon(future.set_result, Ack(self.add(topic, partition, key, value, epoch), 0))
        return future

    def append_rows(
        self,
        topic: str,
        partition: int,
        rows: Mapping[bytes, bytes | None],
        epoch: int,
        durable: Callable[[], None] | None = None,
    ) -> None:
        for key, value in rows.items():
            self.add(topic, partition, key, value, epoch)
        if durable is not None:
            asyncio.get_running_loop().call_soon(durable)

    # --- reading ----------------------------------------------------------------------------------------------------

    def end(self, tp: TopicPartition) -> int:
        records = self.records[tp]
        return records[-1].offset + 1 if records else self.begins.get(tp, 0)

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault

    async def bounds(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        self.asks += 1
        bounds = {tp: (self.begins.get(tp, 0), self.end(tp)) for tp in tps}
        await self._answer()
        return bounds

    async def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[Sequence[StoredRecord], None]:
        self.asked.append((start, stop))
        if (gate := self.gates.get(tp)) is not None:
            await gate.wait()
        there = [record for record in self.records[tp] if start <= record.offset < stop]
        for first in range(0, len(there), self.at_once):
            await self._answer()
            yield there[first : first + self.at_once]

    async def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        for tp, (start, stop) in ranges.items():
            async for records in self.read(tp, start, stop):
                apply(tp, records)

    def fault(self, number: int) -> str | None:
        return self.lost.get(number)

    def note_removed(self, tp: TopicPartition, count: int) -> None:
        self.removed += count

    def note_end(self, tp: TopicPartition, end: int) -> bool:
        return self.acknowledged

    def drop(self, reason: str) -> None:
        pass

    async def flush(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Notes(Fold[Any]):
    """Records the topic and offsets it folds; cannot read poison, and raises given errors, once each."""

    def __init__(self, topic: str, folded: list[tuple[str, int]]) -> None:
        super().__init__(lambda changes: None)
        self.topic = topic
        self.folded = folded
        self.failures: list[Exception] = []

    @staticmethod
    def decode(value: bytes | None) -> None:
        if value == POISON:
            raise RecordError("record version 9 is not known")

    def fold(self, draft: Draft[Any], record: StoredRecord) -> None:
        self.decode(record.value)
        if self.failures:
            raise self.failures.pop(0)
        self.folded.append((self.topic, record.offset))


class MemoryNode:
    """A node that only takes partitions over."""

    def __init__(self, log: MemoryLog, directory: Path, *, shared: bool = True) -> None:
        self.log = log
        self.folded: list[tuple[str, int]] = []
        folds = {topic: Notes(topic, self.folded) for topic in sorted(FOLDED)}
        backend: Any = log
        self.takeover = Takeover(backend, folds, shared)
        self.databases = Databases(directory)
        self.tables = Tables(self.databases, log.writer, log.now_ms)
        self.surveyed: list[int] = []

    def owner(self, number: int) -> PartitionOwner:
        owner = PartitionOwner(number)
        owner.take_rows(self.tables.open(number))
        return owner

    async def survey(self, owner: PartitionOwner) -> None:
        self.surveyed.append(owner.number)

    async def take_over(self, *owners: PartitionOwner) -> None:
        await asyncio.gather(*(self.takeover.run(owner, self.survey) for owner in owners))


AWAY = Unavailable("the brokers are away")
