"""A real Kafka deletes audio at its retention time, even with little traffic, and not earlier."""

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streams.kafka import topic_settings
from streams.kafka.connection import KafkaConnection
from streams.kafka.topics import ensure
from tests.kafka.broker import launched_kafka
from topics import catalog

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KEPT_MS = 2000
SEGMENT_MS = 1000
#: How often the broker checks retention, and its initial delay, by default half a minute.
LOOK_MS = 200
QUICK_LOOK = {"log.retention.check.interval.ms": LOOK_MS, "log.initial.task.delay.ms": LOOK_MS}
#: For the broker's checks, the pause between two records, and a busy machine. Without short segments no record is
#: deleted for hours.
SLACK_MS = 30_000
AUDIO = TopicPartition(catalog.COMMANDS, 0)


async def trickle(connection: KafkaConnection) -> list[float]:
    """Write a record every 0.2 s until some are deleted; return the age in seconds at which each was."""
    written: list[float] = []
    first = 0
    consumer = AIOKafkaConsumer(**connection.aiokafka())
    async with AIOKafkaProducer(**connection.aiokafka(), acks="all") as producer, consumer, asyncio.timeout(120):
        while first == 0:
            stored = await producer.send_and_wait(AUDIO.topic, b"audio", partition=AUDIO.partition)
            # The broker's time: here its answer may come late.
            written.append(stored.timestamp / 1000)
            await asyncio.sleep(0.2)
            first = (await consumer.beginning_offsets([AUDIO]))[AUDIO]
    return [time.time() - at for at in written[:first]]


async def test_audio_is_deleted_on_time_under_light_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka deletes whole segments, so a record is kept for the length of its segment longer."""
    monkeypatch.setattr(topic_settings, "MINUTE_MS", SEGMENT_MS)
    with launched_kafka(settings=QUICK_LOOK) as cluster:
        connection = KafkaConnection((cluster.bootstrap,))
        await ensure(connection, catalog.topics(KEPT_MS), 1, 1)
        ages = await trickle(connection)
    assert min(ages) * 1000 >= KEPT_MS
    assert max(ages) * 1000 <= KEPT_MS + SEGMENT_MS + SLACK_MS
