"""The protocols of a log: appends, single records, ranges, whole topics. The embedded log and Kafka implement it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from topics.catalog import TopicPartition

#: Returns the lowest offset of a partition that is still needed, None while that is not known.
Floor = Callable[[TopicPartition], int | None]


class Ack(NamedTuple):
    """The place of a record in the log, and its time."""

    offset: int
    #: Log time in milliseconds.
    timestamp: int


class StoredRecord(NamedTuple):
    """One record as it is on the log."""

    offset: int
    #: Log time in milliseconds.
    timestamp: int
    key: bytes | None
    value: bytes | None
    #: The epoch of the owner that appended it; 0 on a log that has one writer, and on topics other than the changelog.
    epoch: int = 0


#: Takes records of one partition that were read back.
Apply = Callable[[TopicPartition, Sequence[StoredRecord]], None]


class LogUser(Protocol):
    """The node that uses a log, as the log sees it."""

    def deliver(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        """Take records of a folded topic that this process appended and that are durable now, in the log's order."""

    def overtaken(self, tp: TopicPartition, start: int, stop: int) -> None:
        """Another process wrote some of the records [start, stop) of a changelog."""

    def floor(self, tp: TopicPartition) -> int | None: ...

    def may_append(self) -> bool:
        """Return whether nobody else owns what this node owns; otherwise nothing may be appended."""

    def lapsed(self, reason: str) -> None:
        """Give up all partitions: records were dropped, because nothing may be appended now.

        Nobody waits for the rows of a table, so their loss must not go unnoticed: the next owner writes them.
        """

    def fail(self, error: BaseException) -> None:
        """Take the reason why the log cannot go on."""


class LogWriter(Protocol):
    """Appends records; order within a partition is the order of the calls."""

    @property
    def queued_bytes(self) -> int:
        """Bytes that are enqueued and not yet durable."""

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        bounded: bool = True,
        epoch: int = 0,
    ) -> asyncio.Future[Ack]:
        """Enqueue a record at once; the future resolves when it is durable.

        Raises:
            Unavailable: the queue is full (only when `bounded`); nothing was enqueued. The future raises it when the
                log does not take the record.
        """

    def append_rows(self, topic: str, partition: int, rows: Mapping[bytes, bytes | None], epoch: int) -> None:
        """Enqueue records that nobody waits for, in order. `flush` waits for them; a failure stops the process."""

    async def flush(self) -> None:
        """Return once everything enqueued before is durable; raise when something of it failed."""


class ReadableLog(Protocol):
    """A log whose partitions can be read from any offset; a call raises Unavailable if the log does not answer."""

    async def bounds(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return of each partition the first offset that can be read and the offset after the last record."""

    def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[Sequence[StoredRecord], None]:
        """Yield the records of [start, stop) that are there, some at a time, in order."""


class Log(ReadableLog, Protocol):
    """The log that a node stands on."""

    @property
    def writer(self) -> LogWriter: ...

    def topic_name(self, topic: str) -> str:
        """Return what people find a topic of the catalogue under: on Kafka its prefix may be another."""

    async def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        """Hand all records of some ranges to `apply`, each partition in order, in a thread of its own."""


class RecordReader(Protocol):
    """Reads records of one topic at known offsets; raises Unavailable if the log does not answer."""

    def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        """Yield the values at rising offsets of one partition, None if the log no longer has the record."""


class StretchReader(Protocol):
    """Reads records of one topic, some at a time; raises Unavailable if the log does not answer."""

    async def stretch(self, partition: int, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        """Return the record at the first of some offsets, if it exists, and more: those at the others, which are at
        most `size` bytes together, or about as much of what follows.
        """


class PartitionRecord(NamedTuple):
    """One record, its partition and its log time in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class LogHistory:
    """Reads whole topics from beginning to end, beside or without a running service, to count again what was done.

    Loop only.
    """

    def __init__(self, log: ReadableLog, topics: Mapping[str, int]) -> None:
        """Read topics with these numbers of partitions; others have no records."""
        self._log = log
        self._topics = topics

    async def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition: above 0 where retention removed records."""
        return {tp.partition: first for tp, (first, _) in (await self._bounds(topic)).items()}

    async def records(self, topic: str) -> AsyncGenerator[PartitionRecord, None]:
        """Yield all records that are there at the first step, each partition in order."""
        for tp, bounds in (await self._bounds(topic)).items():
            async with aclosing(self._log.read(tp, *bounds)) as reading:
                async for records in reading:
                    for record in records:
                        yield PartitionRecord(tp.partition, *record[:4])

    async def _bounds(self, topic: str) -> Mapping[TopicPartition, tuple[int, int]]:
        return await self._log.bounds([TopicPartition(topic, number) for number in range(self._topics.get(topic, 0))])
