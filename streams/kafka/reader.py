"""Reading single records of Kafka again, for audio that is no longer in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from topics.errors import Unavailable

FETCH_SECONDS: Final = 10.0


class KafkaReader:
    """The `RecordReader` of one topic on Kafka: assigns and seeks a consumer without a group; one reading at a time."""

    def __init__(self, bootstrap: Sequence[str], record_limit: int, topic: str) -> None:
        self._bootstrap = ",".join(bootstrap)
        self._limit = record_limit
        self._topic = topic
        self._lock = asyncio.Lock()
        self._consumer: Any = None

    async def _started(self) -> Any:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=self._limit,
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            self._consumer = consumer
        return self._consumer

    async def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        """Yield the values at rising offsets, None where the record is past the topic's retention.

        Raises:
            Unavailable: Kafka does not answer.
        """
        tp = TopicPartition(self._topic, partition)
        async with self._lock:
            try:
                async with asyncio.timeout(FETCH_SECONDS):
                    consumer = await self._started()
                    consumer.assign([tp])
                    earliest = (await consumer.beginning_offsets([tp]))[tp]
                at: int | None = None
                for offset in offsets:
                    if offset >= earliest and at != offset:
                        consumer.seek(tp, offset)
                    async with asyncio.timeout(FETCH_SECONDS):
                        record = await consumer.getone(tp) if offset >= earliest else None
                    at = None if record is None else record.offset + 1
                    yield record.value if record is not None and record.offset == offset else None
            except (KafkaError, TimeoutError) as error:
                raise Unavailable(f"the log does not give audio back: {error!r}") from error

    async def stop(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            await self._consumer.stop()
