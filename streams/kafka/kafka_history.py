"""Reads whole topics of Kafka, beside a running service or without one."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Self

from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import Consumers
from streams.kafka.refusal import refusal, unreachable
from streams.log import PartitionRecord
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import Unavailable


class KafkaHistory:
    """The `LogHistory` of Kafka: consumers without a group, which disturb no other. Loop only."""

    def __init__(self, consumers: Consumers, partitions: int) -> None:
        self._consumers = consumers
        self._partitions = partitions

    @classmethod
    async def open(cls, connection: KafkaConnection, partitions: int, record_limit: int) -> Self:
        """Connect to brokers whose topics have this many partitions.

        Raises:
            Unavailable: they do not answer.
        """
        # librdkafka goes on trying, whatever the reason, until its time is over.
        if fault := await unreachable(connection):
            raise Unavailable(fault)
        history = cls(Consumers(connection, record_limit), partitions)
        try:
            await history.first_offsets(CHANGELOG)
        except Unavailable as error:
            await history.close()
            raise Unavailable(await refusal(connection, error)) from error
        return history

    async def first_offsets(self, topic: str) -> Mapping[int, int]:
        return {tp.partition: first for tp, (first, _) in (await self._bounds(topic)).items()}

    async def records(self, topic: str) -> AsyncGenerator[PartitionRecord, None]:
        async with aclosing(self._consumers.read_all(await self._bounds(topic))) as reading:
            async for batch in reading:
                for tp, records in batch.items():
                    for record in records:
                        yield PartitionRecord(tp.partition, *record[:4])

    async def close(self) -> None:
        await asyncio.to_thread(self._consumers.close)

    async def _bounds(self, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        return await self._consumers.bounds([TopicPartition(topic, number) for number in range(self._partitions)])
