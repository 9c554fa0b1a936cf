"""A topic that is compacted at once: the last record of each key stays, and tombstones leave when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.kafka.launcher import KafkaCluster
from tests.kafka.broker import launched_kafka
from tests.kafka.compaction import QUICK_CLEANER, compact
from tests.kafka.records import records

pytestmark = pytest.mark.kafka

TOPIC = "compacted"


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    """A broker that compacts at once."""
    with launched_kafka(settings=QUICK_CLEANER) as cluster:
        yield cluster


async def _story(cluster: KafkaCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs={"cleanup.policy": "compact"})])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in (b"first", b"second", None):
            await producer.send_and_wait(TOPIC, value, b"deleted", 0)
            await producer.send_and_wait(TOPIC, value or b"third", b"kept", 0)

        async def write() -> None:
            while True:
                await producer.send_and_wait(TOPIC, b"ends segments", b"more", 0)
                await asyncio.sleep(0.1)

        writing = asyncio.create_task(write())
        assert await compact(cluster, TOPIC, tombstones_ms=0)
        assert await compact(cluster, TOPIC)
        writing.cancel()


def test_the_last_of_each_key_stays(cluster: KafkaCluster) -> None:
    asyncio.run(_story(cluster))
    left = [(one.key, one.value) for one in asyncio.run(records(cluster.bootstrap, TOPIC, 1)) if one.key != b"more"]
    assert left == [(b"kept", b"third")]
