"""A client behind a proxy: held requests arrive later, even from the dead; the log repeats what is not answered."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from streams.kafka import kafka_writer
from streams.kafka.connection import KafkaConnection
from tests.kafka.broker import admin_client, launched_kafka
from tests.kafka.proxy import Hold, KafkaProxy
from tests.kafka.records import records
from tests.kafka_launcher.launcher import KafkaCluster
from tests.waiting import until
from topics.catalog import CHANGELOG

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPICS = ("held", "orphaned", CHANGELOG)


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[KafkaCluster, KafkaProxy]]:
    with KafkaProxy(1) as proxy, launched_kafka(1, [proxy.ports]) as cluster:
        proxy.open({door.advertised: door.port for door in cluster.doors[0]})
        for topic in TOPICS:
            proxy.watch(topic)
            asyncio.run(_create(cluster.bootstrap, topic))
        yield cluster, proxy


async def _create(bootstrap: str, topic: str) -> None:
    async with admin_client(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])


async def _values(bootstrap: str, topic: str) -> list[bytes]:
    return [record.value for record in await records(bootstrap, topic, 1)]


@pytest.mark.parametrize(("topic", "dies"), [("held", False), ("orphaned", True)])
async def test_held_request_arrives_later_and_once(
    proxied: tuple[KafkaCluster, KafkaProxy], topic: str, dies: bool
) -> None:
    """Once, although a client that lost its connection repeats it: idempotent producers have sequence numbers."""
    cluster, proxy = proxied
    client = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, enable_idempotence=True)
    await client.start()
    await client.send_and_wait(topic, b"before", partition=0)
    proxy.hold(Hold.PRODUCE)
    produced = proxy.produced[topic.encode()]
    sent = await client.send(topic, b"held", partition=0)
    # Not any request that waits for a moment.
    await until(lambda: proxy.produced[topic.encode()] > produced)
    if dies:
        sent.cancel()
        proxy.cut()
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as other:
        await other.send_and_wait(topic, b"meanwhile", partition=0)
    assert await _values(cluster.bootstrap, topic) == [b"before", b"meanwhile"]
    proxy.hold(Hold.NOTHING)
    await client.stop()
    await until(lambda: not proxy.waiting)
    async with asyncio.timeout(90):
        while len(found := await _values(cluster.bootstrap, topic)) < 3:  # noqa: ASYNC110 (it is another process)
            await asyncio.sleep(0.1)
    assert found == [b"before", b"meanwhile", b"held"]
    assert proxy.waiting == 0


async def test_write_is_repeated_on_another_connection_if_a_broker_is_silent(
    proxied: tuple[KafkaCluster, KafkaProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that hangs leads no partition for long, but its connection stays."""
    cluster, proxy = proxied
    monkeypatch.setattr(kafka_writer, "SILENT_MS", 1000)
    writer = kafka_writer.KafkaWriter(KafkaConnection((proxy.bootstrap,)), 10_000, 2**20)
    try:
        await writer.append(CHANGELOG, 0, b"k", b"before", bounded=False)
        proxy.hold(Hold.PRODUCE, newer=False)
        async with asyncio.timeout(90):
            await writer.append(CHANGELOG, 0, b"k", b"after", bounded=False)
        proxy.hold(Hold.NOTHING)
    finally:
        await writer.close()
    await until(lambda: not proxy.waiting)
    assert await _values(cluster.bootstrap, CHANGELOG) == [b"before", b"after"]
