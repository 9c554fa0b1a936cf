"""A client behind a proxy: held requests arrive later, even if the sender is dead."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer

from tests.kafka.broker import launched_kafka
from tests.kafka.proxy import Hold, KafkaProxy
from tests.kafka.test_launcher import consume, create_topic
from tests.kafka_launcher.launcher import KafkaCluster
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC, ORPHANED, DELAYED = "held", "orphaned", "delayed"


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[KafkaCluster, KafkaProxy]]:
    with KafkaProxy(1) as proxy, launched_kafka(1, [proxy.ports]) as cluster:
        proxy.open({door.advertised: door.port for door in cluster.doors[0]})
        for topic in (TOPIC, ORPHANED, DELAYED):
            proxy.watch(topic)
            asyncio.run(create_topic(cluster.bootstrap, topic))
        yield cluster, proxy


async def _held(cluster: KafkaCluster, proxy: KafkaProxy, topic: str, dies: bool) -> list[bytes]:
    """Hold a record, send another directly, release; return the records in the topic."""
    client = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, enable_idempotence=True)
    await client.start()
    await client.send_and_wait(topic, b"before", partition=0)
    proxy.hold(Hold.PRODUCE)
    sent = await client.send(topic, b"held", partition=0)
    await until(lambda: proxy.waiting, 30)
    if dies:
        sent.cancel()
        proxy.cut()
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as other:
        await other.send_and_wait(topic, b"meanwhile", partition=0)
    assert await consume(cluster.bootstrap, topic) == [b"before", b"meanwhile"]
    proxy.hold(Hold.NOTHING)
    await client.stop()
    await until(lambda: not proxy.waiting)
    async with asyncio.timeout(30):
        while len(found := await consume(cluster.bootstrap, topic)) < 3:  # noqa: ASYNC110 (it is another process)
            await asyncio.sleep(0.1)
    return found


def test_held_request_arrives_later(proxied: tuple[KafkaCluster, KafkaProxy]) -> None:
    cluster, proxy = proxied
    assert asyncio.run(_held(cluster, proxy, TOPIC, dies=False)) == [b"before", b"meanwhile", b"held"]
    assert proxy.produced[TOPIC.encode()] == 2
    assert proxy.waiting == 0


def test_held_request_arrives_once_after_connection_closes(proxied: tuple[KafkaCluster, KafkaProxy]) -> None:
    """Once, although the client repeats it: idempotent producers have sequence numbers."""
    cluster, proxy = proxied
    assert asyncio.run(_held(cluster, proxy, ORPHANED, dies=True)) == [b"before", b"meanwhile", b"held"]
