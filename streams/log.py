"""What a log offers: appends, single records, whole topics. The embedded log and Kafka implement it in their rooms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from topics.catalog import TopicPartition

#: Returns the lowest offset of a partition that is still needed, None while that is not known.
Floor = Callable[[TopicPartition], int | None]


class Ack(NamedTuple):
    """Where and when the log took a record."""

    offset: int
    #: Log time in milliseconds.
    timestamp: int


class LogWriter(Protocol):
    """Appends records; order within a partition is the order of the calls."""

    @property
    def queued_bytes(self) -> int:
        """Bytes that are enqueued and not yet durable."""
        ...

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, *, bounded: bool = True
    ) -> asyncio.Future[Ack]:
        """Enqueue a record at once; the future resolves when it is durable.

        Raises:
            Unavailable: the queue is full (only when `bounded`); nothing was enqueued. The future raises it when the
                log does not take the record.
        """
        ...

    def append_soon(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Enqueue a record that nobody waits for; `flush` does, and its failure stops the process."""
        ...

    async def flush(self) -> None:
        """Return once everything enqueued before is durable; raise when something of it failed."""
        ...

    def end(self, tp: TopicPartition) -> int | None:
        """Return the offset after the last durable record, None while this process does not know it."""
        ...


class RecordReader(Protocol):
    """Reads records of one topic at offsets that are known."""

    def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        """Yield the values at rising offsets of one partition, None where the log no longer has the record.

        Raises:
            Unavailable: the log does not answer now.
        """
        ...


class PartitionRecord(NamedTuple):
    """One record, its partition and its log time in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class LogHistory(Protocol):
    """Whole topics from beginning to end, beside or without a running service: to count again what was done."""

    async def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition: above 0 where retention removed records."""
        ...

    def records(self, topic: str) -> AsyncGenerator[PartitionRecord, None]:
        """Yield all records that are there at the first step, each partition in order."""
        ...

    async def close(self) -> None:
        """Give the log back."""
        ...
