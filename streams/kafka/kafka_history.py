"""Reads whole topics of Kafka, beside a running service or without one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import Consumers
from streams.kafka.refusal import refusal, unreachable
from streams.log import LogHistory
from topics import catalog
from topics.errors import Unavailable


@asynccontextmanager
async def kafka_history(connection: KafkaConnection, partitions: int, record_limit: int) -> AsyncIterator[LogHistory]:
    """Connect to brokers whose topics have this many partitions; their consumers have no group, and disturb no other.

    Raises:
        Unavailable: they do not answer.
    """
    # librdkafka goes on trying, whatever the reason, until its time is over.
    if fault := await unreachable(connection):
        raise Unavailable(fault)
    consumers = Consumers(connection, record_limit)
    history = LogHistory(consumers, {topic.name: partitions for topic in catalog.topics(0)})
    try:
        try:
            await history.first_offsets(catalog.CHANGELOG)
        except Unavailable as error:
            raise Unavailable(await refusal(connection, error)) from error
        yield history
    finally:
        await asyncio.to_thread(consumers.close)
