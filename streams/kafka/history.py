"""Reading whole topics from beginning to end, beside or without a running service: for counting again what was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streams.embedded.errors import LogError
from streams.embedded.log import EmbeddedLog
from topics.errors import Unavailable

FETCH_SECONDS: Final = 10.0
BATCH_RECORDS: Final = 256
BATCH_BYTES: Final = 8 * 1024 * 1024


class Logged(NamedTuple):
    """One record, where it lies, and its log time in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class History(Protocol):
    """The log as it is now."""

    async def begins(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition: above 0 where retention removed records."""
        ...

    def records(self, topic: str) -> AsyncGenerator[Logged, None]:
        """Yield all records that are there at the first step, each partition in order."""
        ...

    async def close(self) -> None:
        """Give the log back."""
        ...


class EmbeddedHistory:
    """The embedded log of a service that is stopped."""

    def __init__(self, directory: Path) -> None:
        """Open the log of a directory, without changing what is in it.

        Raises:
            LogLocked: the service runs.
            LogError: there is no log, or it cannot be read.
        """
        if not directory.is_dir():
            raise LogError(f"there is no log in {directory}")
        self._log = EmbeddedLog.open(directory)

    async def begins(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition; none for a topic that was never made."""
        return {
            number: self._log.earliest(TopicPartition(topic, number))
            for number in range(self._log.topics().get(topic, 0))
        }

    async def records(self, topic: str) -> AsyncGenerator[Logged, None]:
        """Yield all records; LogError where the log is damaged."""
        for number, offset in (await self.begins(topic)).items():
            tp = TopicPartition(topic, number)
            while batch := self._log.read(tp, offset, BATCH_RECORDS, BATCH_BYTES):
                for record in batch:
                    yield Logged(number, *record)
                offset = batch[-1].offset + 1

    async def close(self) -> None:
        """Give the directory back."""
        await self._log.close()


class KafkaHistory:
    """A consumer that belongs to no group, so that it disturbs nobody; one reading at a time."""

    def __init__(self, consumer: Any, partitions: int) -> None:
        self._consumer = consumer
        self._partitions = partitions

    @classmethod
    async def open(cls, bootstrap: Sequence[str], partitions: int, record_limit: int) -> Self:
        """Connect to brokers whose topics have so many partitions.

        Raises:
            Unavailable: they do not answer.
        """
        consumer = AIOKafkaConsumer(
            bootstrap_servers=",".join(bootstrap),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=record_limit,
        )
        try:
            await consumer.start()
        except KafkaError as error:
            await consumer.stop()
            raise Unavailable(f"Kafka at {', '.join(bootstrap)} does not answer: {error!r}") from error
        return cls(consumer, partitions)

    async def begins(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition; Unavailable when the brokers do not answer."""
        found = await self._asked(self._consumer.beginning_offsets(self._all(topic)))
        return {tp.partition: offset for tp, offset in found.items()}

    async def records(self, topic: str) -> AsyncGenerator[Logged, None]:
        """Yield all records; Unavailable when the brokers do not answer."""
        tps = self._all(topic)
        begins, ends = [
            await self._asked(offsets(tps))
            for offsets in (self._consumer.beginning_offsets, self._consumer.end_offsets)
        ]
        left = {tp for tp in tps if begins[tp] < ends[tp]}
        self._consumer.assign(list(left))
        for tp in left:
            self._consumer.seek(tp, begins[tp])
        while left:
            fetched = await self._asked(self._consumer.getmany(timeout_ms=int(FETCH_SECONDS * 1000)))
            if not fetched:
                raise Unavailable(f"Kafka gives no more of {topic}, though there is more")
            for tp, batch in fetched.items():
                for record in batch:
                    if record.offset < ends[tp]:
                        yield Logged(tp.partition, record.offset, record.timestamp, record.key, record.value)
            ended = {tp for tp in left if await self._asked(self._consumer.position(tp)) >= ends[tp]}
            self._consumer.pause(*ended)
            left -= ended

    async def close(self) -> None:
        """Close the connections."""
        await self._consumer.stop()

    def _all(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self._partitions)]

    async def _asked(self, answer: Any) -> Any:
        try:
            async with asyncio.timeout(2 * FETCH_SECONDS):
                return await answer
        except (KafkaError, TimeoutError) as error:
            raise Unavailable(f"Kafka does not answer: {error!r}") from error
