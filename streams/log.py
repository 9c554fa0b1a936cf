"""The protocols of a log: appends, single records, ranges, whole topics. The embedded log and Kafka implement it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, Protocol

import msgspec

from topics.catalog import TopicPartition
from topics.records import Record

#: Returns the lowest offset of a partition that is still needed, None while unknown.
Floor = Callable[[TopicPartition], int | None]
Needed = Callable[[TopicPartition, int, int, int | None], list[int]]

#: Bytes that a record in a queue or cache takes besides its key and value.
RECORD_COST: Final = 300


def record_cost(key: bytes | None, value: bytes | None) -> int:
    return RECORD_COST + (len(key) if key else 0) + (len(value) if value else 0)


class Ack(NamedTuple):
    """The place of a record in the log, and its time."""

    offset: int
    #: Log time in milliseconds.
    timestamp: int


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of the log. Thousands are in memory, so the garbage collector does not examine them."""

    offset: int
    #: Log time in milliseconds.
    timestamp: int
    key: bytes | None
    value: bytes | None
    #: The epoch of the owner that appended it; 0 on a log with one writer, and on topics other than the changelog.
    epoch: int = 0
    #: What it says, if this process encoded it; None if it was read from the log.
    content: Record | None = None


#: Accepts records of one partition.
Apply = Callable[[TopicPartition, Sequence[StoredRecord]], None]


class LogUser(Protocol):
    """The callbacks of a log to its node."""

    def deliver(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        """Accept records of a folded topic that this process appended and that are now durable, in log order."""

    def overtaken(self, tp: TopicPartition, start: int, stop: int) -> None:
        """Note that another process wrote some of the records [start, stop) of a changelog."""

    def floor(self, tp: TopicPartition) -> int | None: ...

    def needed(self, tp: TopicPartition, start: int, stop: int, most: int | None) -> list[int]:
        """Return the offsets in [start, stop) with records that are needed, in order.

        All records from the last one on may be needed. Return nothing if all of them may be, or if the partition has
        more than `most` needed records, which take long to search.
        """

    def may_append(self) -> bool:
        """Return whether this node certainly still owns its partitions; otherwise nothing may be appended."""

    def lapsed(self, reason: str) -> None:
        """Give up all partitions, because the log dropped records while appends were forbidden.

        Table rows have no waiter that would notice their loss, so the next owner must write them.
        """

    def stop_partition(self, number: int, reason: str) -> None:
        """Stop serving a partition, if it is owned: its log is not the one of before."""

    def fail(self, error: BaseException) -> None:
        """Stop the node: the log cannot continue."""


class LogWriter(Protocol):
    """Appends records: in each partition those with the same `bounded` and `project` in the order of the calls."""

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
        project: str = "",
        content: Record | None = None,
    ) -> asyncio.Future[Ack]:
        """Enqueue a record at once; the future resolves when it is durable.

        Folds take `content`, which `value` must encode, instead of decoding it again.

        If records wait in this process, as on the embedded log, bounded ones do so in turn by `project`.

        Raises:
            Unavailable: the queue is full (only if `bounded`); nothing was enqueued. The future raises it if the log
                rejects the record.
        """

    def append_rows(
        self,
        topic: str,
        partition: int,
        rows: Mapping[bytes, bytes | None],
        epoch: int,
        durable: Callable[[], None] | None = None,
    ) -> None:
        """Enqueue records without futures, in order. `flush` waits for them; a failure stops the process.

        `durable` is called once all of them are durable, after every earlier one of the partition; it must not raise.
        """

    async def flush(self) -> None:
        """Return once everything enqueued before is durable; raise if any of it failed."""


class ReadableLog(Protocol):
    """A log whose partitions can be read from any offset; a call raises Unavailable if the log does not answer."""

    async def bounds(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return for each partition the first readable offset and the offset after the last record."""

    def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[Sequence[StoredRecord], None]:
        """Yield the existing records of [start, stop) in batches, in order."""


class RecordReader(Protocol):
    """Reads records at known offsets; raises Unavailable if the log does not answer."""

    def values(self, tp: TopicPartition, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        """Yield the values at ascending offsets, None for removed records."""


class StretchReader(Protocol):
    """Reads batches of records; raises Unavailable if the log does not answer."""

    async def stretch(self, tp: TopicPartition, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        """Return the record at the first offset, if it exists, and more records: those at the other offsets, with at
        most `size` bytes together, or about `size` bytes of those that follow.
        """


class Log(ReadableLog, RecordReader, StretchReader, Protocol):
    """The log of a node."""

    @property
    def writer(self) -> LogWriter: ...

    def topic_name(self, topic: str) -> str:
        """Return the name of a topic for operators: on Kafka its prefix may differ from the catalogue's."""

    async def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        """Pass all records of some ranges to `apply` in a thread, each partition in order."""


class PartitionRecord(NamedTuple):
    """One record, its partition and its log time in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class LogHistory:
    """Reads whole topics, with or without a running service, to recount past work. Loop only."""

    def __init__(self, log: ReadableLog, topics: Mapping[str, int]) -> None:
        """Read topics with these numbers of partitions; treat all others as empty."""
        self._log = log
        self._topics = topics

    async def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition, above 0 if retention removed records."""
        return {tp.partition: first for tp, (first, _) in (await self._bounds(topic)).items()}

    async def records(self, topic: str) -> AsyncGenerator[PartitionRecord, None]:
        """Yield all records that exist at the first step, each partition in order."""
        for tp, bounds in (await self._bounds(topic)).items():
            async with aclosing(self._log.read(tp, *bounds)) as reading:
                async for records in reading:
                    for record in records:
                        yield PartitionRecord(tp.partition, record.offset, record.timestamp, record.key, record.value)

    async def _bounds(self, topic: str) -> Mapping[TopicPartition, tuple[int, int]]:
        return await self._log.bounds([TopicPartition(topic, number) for number in range(self._topics.get(topic, 0))])
