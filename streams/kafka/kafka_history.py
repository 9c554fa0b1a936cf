"""Reads whole topics of Kafka, beside a running service or without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streams.kafka.connection import KafkaConnection
from streams.kafka.refusal import refusal
from streams.log import PartitionRecord
from topics.errors import Unavailable

FETCH_SECONDS: Final = 10.0


class KafkaHistory:
    """The `LogHistory` of Kafka: a consumer without a group, which disturbs no other; one reading at a time.

    Loop only.
    """

    def __init__(self, connection: KafkaConnection, consumer: Any, partitions: int) -> None:
        self._connection = connection
        self._consumer = consumer
        self._partitions = partitions

    @classmethod
    async def open(cls, connection: KafkaConnection, partitions: int, record_limit: int) -> Self:
        """Connect to brokers whose topics have this many partitions.

        Raises:
            Unavailable: they do not answer.
        """
        consumer = AIOKafkaConsumer(
            **connection.aiokafka(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=record_limit,
        )
        try:
            await consumer.start()
        except KafkaError as error:
            await consumer.stop()
            raise Unavailable(await refusal(connection, error)) from error
        return cls(connection, consumer, partitions)

    async def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition.

        Raises:
            Unavailable: the brokers do not answer.
        """
        offsets = await self._answer(self._consumer.beginning_offsets(self._partitions_of(topic)))
        return {tp.partition: offset for tp, offset in offsets.items()}

    async def records(self, topic: str) -> AsyncGenerator[PartitionRecord, None]:
        tps = self._partitions_of(topic)
        begins = await self._answer(self._consumer.beginning_offsets(tps))
        ends = await self._answer(self._consumer.end_offsets(tps))
        left = {tp for tp in tps if begins[tp] < ends[tp]}
        self._consumer.assign(list(left))
        for tp in left:
            self._consumer.seek(tp, begins[tp])
        while left:
            fetched = await self._answer(self._consumer.getmany(timeout_ms=int(FETCH_SECONDS * 1000)))
            if not fetched:
                raise Unavailable(f"Kafka gives no more of {self._connection.topic(topic)}, though there is more")
            for tp, batch in fetched.items():
                for record in batch:
                    if record.offset < ends[tp]:
                        yield PartitionRecord(tp.partition, record.offset, record.timestamp, record.key, record.value)
            ended = {tp for tp in left if await self._answer(self._consumer.position(tp)) >= ends[tp]}
            self._consumer.pause(*ended)
            left -= ended

    async def close(self) -> None:
        await self._consumer.stop()

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        name = self._connection.topic(topic)
        return [TopicPartition(name, number) for number in range(self._partitions)]

    async def _answer(self, request: Any) -> Any:
        """Return the brokers' answer; raise Unavailable if there is none."""
        try:
            async with asyncio.timeout(2 * FETCH_SECONDS):
                return await request
        except (KafkaError, TimeoutError) as error:
            raise Unavailable(f"Kafka does not answer: {error!r}") from error
