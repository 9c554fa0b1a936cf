"""Whole topics read from a real Kafka: every record once, in order, except those removed by retention."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from streams.kafka import topics as kafka_topics
from streams.kafka.connection import KafkaConnection
from streams.kafka.kafka_history import kafka_history
from streams.log import PartitionRecord
from tests.kafka.broker import Broker, admin_client, kafka_broker
from topics import catalog

pytestmark = pytest.mark.kafka

PARTITIONS = 3
LIMIT = catalog.record_limit(0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka_broker() as broker:
        asyncio.run(kafka_topics.ensure(broker.connection, catalog.topics(3_600_000), PARTITIONS, 1))
        yield broker


async def _write(broker: Broker, topic: str, counts: dict[int, int]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=LIMIT) as producer:
        for partition, count in counts.items():
            for number in range(count):
                value = b"%d" % number + bytes(900_000)
                await producer.send(topic, value, b"j", partition, timestamp_ms=1000)


async def _read(connection: KafkaConnection) -> tuple[dict[int, int], list[PartitionRecord], list[PartitionRecord]]:
    async with kafka_history(connection, PARTITIONS, LIMIT) as history:
        first = dict(await history.first_offsets(catalog.JOB_COMMANDS))
        records = [record async for record in history.records(catalog.JOB_COMMANDS)]
        # Again with the same consumer, and an empty topic.
        assert sorted(records) == sorted([record async for record in history.records(catalog.JOB_COMMANDS)])
        return first, records, [record async for record in history.records(catalog.JOB_RESULTS)]


def test_all_retained_records_are_read_once(broker: Broker) -> None:
    async def scene() -> tuple[dict[int, int], list[PartitionRecord], list[PartitionRecord]]:
        topic = broker.connection.topic(catalog.JOB_COMMANDS)
        await _write(broker, topic, {0: 12, 2: 3})
        async with admin_client(broker.bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 2): RecordsToDelete(2)})
        return await _read(broker.connection)

    began = time.time() * 1000
    first, records, none = asyncio.run(scene())
    assert first == {0: 0, 1: 0, 2: 2}
    contents = sorted((one.partition, one.offset, int(one.value.rstrip(b"\0"))) for one in records if one.value)
    assert contents == [(0, number, number) for number in range(12)] + [(2, 2, 2)]
    # The broker's clock, not the producer's; it is this machine's, or a container's that is slightly behind.
    assert all(began - 1000 <= one.timestamp <= time.time() * 1000 + 1000 for one in records)
    assert none == []
