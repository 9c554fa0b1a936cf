"""Two services with different prefixes on one Kafka are isolated from each other."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker, admin_client, kafka_broker
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import stream_and_compare
from tests.waiting import wait_for
from topics import catalog

pytestmark = pytest.mark.kafka


async def _stream(service: ServiceProcess, seed: int) -> Stream:
    async with Client(service) as client:
        stream = await stream_and_compare(client, seed)
        listed = await client.ask("GET", "/audio_sessions/", headers={"X-Api-Key": service.key})
        assert [entry["session_id"] for entry in listed.json()["sessions"]] == [stream.session]
        return stream


async def _status(service: ServiceProcess, session: str) -> int:
    async with Client(service) as client:
        return (await client.status(session)).status_code


async def _on_the_broker(broker: Broker) -> tuple[set[str], set[str]]:
    async with admin_client(broker.bootstrap) as admin:
        groups: list[Any] = await admin.list_consumer_groups()
        return set(await admin.list_topics()), {group for group, *_ in groups}


def test_prefixes_isolate_services_on_one_broker(tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(kafka_broker()) for _ in range(2)]
        services = [
            stack.enter_context(ServiceProcess(tmp_path / f"service-{number}", partitions=2, **broker.settings))
            for number, broker in enumerate(brokers)
        ]
        sessions = [asyncio.run(_stream(service, seed)).session for seed, service in enumerate(services)]
        topics, groups = asyncio.run(_on_the_broker(brokers[0]))
        for broker, service, other in zip(brokers, services, reversed(sessions), strict=True):
            assert asyncio.run(_status(service, other)) == 404
            names = {broker.connection.topic(topic.name) for topic in catalog.topics(0)}
            assert {name for name in topics if name.startswith(broker.prefix)} == names
            assert broker.prefix in groups
            (node,) = service.operate("GET", "/nodes")["nodes"]
            assert {place["topic"] for part in node["node"]["partitions"] for place in part["topics"]} < names
            service.command("usage", "--recount")

    def left() -> list[str]:
        topics, _ = asyncio.run(_on_the_broker(brokers[0]))
        return [name for name in topics if name.startswith(tuple(broker.prefix for broker in brokers))]

    wait_for(lambda: not left())
