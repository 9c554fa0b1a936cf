"""The launcher with real processes: acknowledged data survives a stop and a SIGKILL."""

import asyncio
import socket
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from tests.kafka.broker import admin_client, launched_kafka
from tests.kafka.records import records
from tests.kafka_launcher.jars import LauncherError
from tests.kafka_launcher.launcher import KafkaCluster

pytestmark = pytest.mark.kafka

MEGABYTE = bytes(range(256)) * 4096
LIMIT = 2 * 1024 * 1024


async def create_topic(bootstrap: str, topic: str) -> None:
    async with admin_client(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": str(LIMIT)})])


async def produce(bootstrap: str, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=LIMIT) as producer:
        await producer.send_and_wait(topic, value, partition=0)


async def consume(bootstrap: str, topic: str) -> list[bytes]:
    return [record.value for record in await records(bootstrap, topic, 1)]


@pytest.mark.slow
def test_records_survive_stop_and_sigkill() -> None:
    with launched_kafka() as cluster:
        asyncio.run(create_topic(cluster.bootstrap, "kept"))
        asyncio.run(produce(cluster.bootstrap, "kept", b"before the stop"))
        cluster.stop()
        cluster.start()
        asyncio.run(produce(cluster.bootstrap, "kept", MEGABYTE))
        cluster.kill()
        with pytest.raises(LauncherError, match="node 1 stopped"):
            cluster.watch(0)
        cluster.restart()
        cluster.watch(0)
        assert asyncio.run(consume(cluster.bootstrap, "kept")) == [b"before the stop", MEGABYTE]


def test_data_of_another_cluster_size_is_rejected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # Both starts fail on the port; the first has already stored the number of nodes.
        port = taken.getsockname()[1]
        with pytest.raises(LauncherError, match="not free"):
            KafkaCluster(tmp_path, nodes=3, port=port).start()
        with pytest.raises(LauncherError, match="holds a cluster of 3 node"):
            KafkaCluster(tmp_path, nodes=1, port=port).start()
