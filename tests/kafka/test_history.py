"""Whole topics read from a real Kafka: every record once, in order, except those removed by retention."""

import time

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from streams.kafka import topics as kafka_topics
from streams.kafka.kafka_history import kafka_history
from tests.kafka.broker import admin_client, kafka_broker
from topics import catalog

pytestmark = pytest.mark.kafka

PARTITIONS = 3
LIMIT = catalog.record_limit(0)


async def test_all_retained_records_are_read_once() -> None:
    with kafka_broker() as broker:
        await kafka_topics.ensure(broker.connection, catalog.topics(3_600_000), PARTITIONS, 1)
        began, topic = time.time() * 1000, broker.connection.topic(catalog.JOB_COMMANDS)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=LIMIT) as producer:
            for partition, count in ((0, 12), (2, 3)):
                for number in range(count):
                    value = b"%d" % number + bytes(900_000)
                    await producer.send(topic, value, b"j", partition, timestamp_ms=1000)
        async with admin_client(broker.bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 2): RecordsToDelete(2)})
        async with kafka_history(broker.connection, PARTITIONS, LIMIT) as history:
            assert dict(await history.first_offsets(catalog.JOB_COMMANDS)) == {0: 0, 1: 0, 2: 2}
            records = [record async for record in history.records(catalog.JOB_COMMANDS)]
            # Again with the same consumer, and an empty topic.
            assert sorted(records) == sorted([record async for record in history.records(catalog.JOB_COMMANDS)])
            assert [record async for record in history.records(catalog.JOB_RESULTS)] == []
        contents = sorted((one.partition, one.offset, int(one.value.rstrip(b"\0"))) for one in records if one.value)
        assert contents == [(0, number, number) for number in range(12)] + [(2, 2, 2)]
        # The broker's clock, not the producer's; it is this machine's, or a container's that is slightly behind.
        assert all(began - 1000 <= one.timestamp <= time.time() * 1000 + 1000 for one in records)
