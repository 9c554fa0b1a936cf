"""The launcher with real processes: acknowledged data survives a stop, a SIGKILL and a lost node."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.kafka.broker import Broker, kafka_broker, launched_kafka
from tests.kafka_launcher.jars import LauncherError
from tests.kafka_launcher.launcher import KafkaCluster

pytestmark = pytest.mark.kafka

MEGABYTE = bytes(range(256)) * 4096
LIMIT = 2 * 1024 * 1024


async def create_topic(bootstrap: str, topic: str, copies: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, copies, topic_configs={"max.message.bytes": str(LIMIT)})])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=LIMIT)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value, partition=0)
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=LIMIT)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        return [(await consumer.getone()).value for _ in range(end)]
    finally:
        await consumer.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka_broker() as broker:
        yield broker


def test_broker_accepts_record_of_full_chunk(broker: Broker) -> None:
    topic = f"{broker.prefix}.full-chunk"
    asyncio.run(create_topic(broker.bootstrap, topic))
    asyncio.run(produce(broker.bootstrap, topic, MEGABYTE))
    assert asyncio.run(consume(broker.bootstrap, topic)) == [MEGABYTE]


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


def test_describing_topic_does_not_create_it(broker: Broker) -> None:
    async def asked() -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.describe_topics(["never-made"])
            return list(await admin.list_topics())
        finally:
            await admin.close()

    assert "never-made" not in asyncio.run(asked())


@pytest.mark.slow
def test_three_nodes_survive_loss_of_one() -> None:
    with launched_kafka(nodes=3) as cluster:
        asyncio.run(create_topic(cluster.bootstrap, "copied", copies=3))
        asyncio.run(produce(cluster.bootstrap, "copied", b"three nodes"))
        cluster.kill(1)
        asyncio.run(produce(cluster.bootstrap, "copied", b"two nodes"))
        cluster.restart(1)
        cluster.kill(2)
        assert asyncio.run(consume(cluster.bootstrap, "copied")) == [b"three nodes", b"two nodes"]


def test_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LauncherError, match=f"port {port} is not free"):
            KafkaCluster(tmp_path, port=port).start()


def test_data_of_another_cluster_size_is_rejected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # Both starts fail on the port; the first has already stored the number of nodes.
        port = taken.getsockname()[1]
        with pytest.raises(LauncherError, match="not free"):
            KafkaCluster(tmp_path, nodes=3, port=port).start()
        with pytest.raises(LauncherError, match="holds a cluster of 3 node"):
            KafkaCluster(tmp_path, nodes=1, port=port).start()
