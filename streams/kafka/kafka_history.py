"""Reads whole topics of Kafka, with or without a running service."""

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
    """Connect to brokers whose topics have this many partitions; the consumers join no group.

    Raises:
        Unavailable: the brokers do not answer.
    """
    # librdkafka would retry until its timeout, whatever the reason.
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
