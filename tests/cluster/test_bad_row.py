"""An unreadable row of the changelog affects its session only; no node dies."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from streams.kafka.connection import KafkaConnection
from tests.cluster.nodes import PARTITIONS, service_nodes
from tests.kafka.records import records
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from topics.catalog import CHANGELOG

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 40
#: No MessagePack value begins with this byte.
UNREADABLE = b"\xc1 what a faulty disk or another program left"


async def _fill(node: ServiceProcess) -> list[Stream]:
    async with Client(node) as client:
        streams = [await client.open() for _ in range(SESSIONS)]
        for seed, stream in enumerate(streams):
            for _ in range(3):
                await client.put(stream, seed)
            await client.seal(stream)
            await client.events(stream.session)
        return streams


async def _spoil(bootstrap: str, changelog: str, session: str) -> int:
    """Write an unreadable value after each row of a session, as its owner would; return their number."""
    rows = await records(bootstrap, changelog, PARTITIONS)
    last = {row.key: row for row in rows if row.key and session.encode() in row.key and row.value}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for row in last.values():
            await producer.send_and_wait(changelog, UNREADABLE, row.key, row.partition, headers=list(row.headers))
    return len(last)


async def _events(node: ServiceProcess, streams: list[Stream]) -> list[Any]:
    async with Client(node, give_up=20) as client:
        return [await client.events(stream.session) for stream in streams]


async def _ask(node: ServiceProcess, stream: Stream) -> int:
    async with Client(node) as client:
        return (await client.http.get(f"/audio_sessions/{stream.session}/status")).status_code


def test_unreadable_row_does_not_stop_node(tmp_path: Path) -> None:
    with service_nodes(tmp_path, {}) as (node,):
        node.start()
        spoiled, *others = asyncio.run(_fill(node))
        before = asyncio.run(_events(node, others))
        node.stop()
        bootstrap = node.environment["EARSHOT_BROKER"].removeprefix("kafka://")
        changelog = KafkaConnection((bootstrap,), prefix=node.environment["EARSHOT_KAFKA_PREFIX"]).topic(CHANGELOG)
        assert asyncio.run(_spoil(bootstrap, changelog, spoiled.session)) > 0
        for tables in node.data.glob("tables*"):
            shutil.rmtree(tables)
        node.start()
        assert asyncio.run(_events(node, others)) == before
        # Refused, or unchanged if the row was recognised as foreign; a 500 always has a reason.
        assert asyncio.run(_ask(node, spoiled)) in (200, 404, 500)
        assert node.running, node.tail()
