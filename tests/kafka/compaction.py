"""Forces compaction of a topic, which takes hours in a deployment."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.kafka.broker import admin_client
from tests.kafka_launcher.launcher import KafkaCluster

#: For brokers: check for compaction twice a second.
QUICK_CLEANER = {"log.cleaner.backoff.ms": 500}
#: Source of a setting's value: the topic itself.
OF_THE_TOPIC = 1


async def compact(cluster: KafkaCluster, topic: str, seconds: float = 120.0, tombstones_ms: int | None = None) -> bool:
    """Compact all current records of a topic on all brokers; return False after `seconds`.

    Records must be appended to every partition meanwhile, because only then segments are closed. New tombstones are
    removed by the next compaction after `tombstones_ms`. The topic's settings are restored afterwards.
    """
    async with admin_client(cluster.bootstrap) as admin:
        before = await _settings(admin, topic)
        quick = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"}
        if tombstones_ms is not None:
            quick["delete.retention.ms"] = str(tombstones_ms)
        await _alter(admin, topic, {**before, **quick})
        try:
            numbers = range(len((await admin.describe_topics([topic]))[0]["partitions"]))
            return await _wait(cluster, topic, numbers, seconds)
        finally:
            await _alter(admin, topic, before)


async def _wait(cluster: KafkaCluster, topic: str, numbers: Iterable[int], seconds: float) -> bool:
    ends, deadline = await _ends(cluster.bootstrap, topic, numbers), time.monotonic() + seconds
    while time.monotonic() < deadline:
        if all(compacted_to(data, topic).get(n, 0) >= end for data in cluster.data for n, end in ends.items()):
            return True
        await asyncio.sleep(0.25)
    return False


def compacted_to(data: Path, topic: str) -> dict[int, int]:
    """Return the offset up to which a broker has compacted each partition, read from its data directory."""
    file = data / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    found = (line.rsplit(" ", 2) for line in lines)
    return {int(number): int(offset) for name, number, offset in found if name == topic}


async def _ends(bootstrap: str, topic: str, numbers: Iterable[int]) -> dict[int, int]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in numbers])
        return {one.partition: end for one, end in ends.items()}


async def _settings(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    """Return the topic's own settings, all of which altering replaces."""
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    entries = answers[0].resources[0][4]
    return {entry[0]: entry[1] for entry in entries if entry[3] == OF_THE_TOPIC}


async def _alter(admin: AIOKafkaAdminClient, topic: str, settings: Mapping[str, str]) -> None:
    answers = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))])
    code, message, *_ = answers[0].resources[0]
    assert code == 0, message
