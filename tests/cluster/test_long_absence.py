"""A node that was away longer than the changelog keeps tombstones: deleted sessions stay deleted.

The absence is simulated by the node's clock, and compaction is forced until the tombstones are gone.
"""

import asyncio
import time
from pathlib import Path

import pytest

from tests.cluster.nodes import ahead, service_nodes
from tests.kafka.broker import launched_kafka
from tests.kafka.compaction import QUICK_CLEANER, compact
from tests.kafka.records import records
from tests.kafka_launcher.launcher import KafkaCluster
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from topics.catalog import CHANGELOG

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 12
#: The tombstone retention of the changelog plus an hour.
AWAY_SECONDS = 25 * 3600


async def _forget(cluster: KafkaCluster, node: ServiceProcess, streams: list[Stream]) -> None:
    """Delete sessions, and compact until their tombstones are gone."""
    async with Client(node) as client:
        for stream in streams:
            await client.delete(stream.session)

        async def write() -> None:
            while True:
                await client.put(await client.open(), 1)

        writing = asyncio.create_task(write())
        try:
            deadline = time.monotonic() + 120
            while await _tombstones(cluster.bootstrap, streams):
                assert time.monotonic() < deadline, "the tombstones do not leave"
                assert await compact(cluster, CHANGELOG, tombstones_ms=0)
                await asyncio.sleep(0.2)
        finally:
            writing.cancel()


async def _tombstones(bootstrap: str, streams: list[Stream]) -> int:
    """Return the number of tombstones of these sessions in the changelog."""
    ids = [stream.session.encode() for stream in streams]
    rows = await records(bootstrap, CHANGELOG, 1)
    return sum(any(id in row.key for id in ids) for row in rows if row.key and row.value is None)


async def test_deleted_sessions_stay_deleted(tmp_path: Path) -> None:
    settings = {"partitions": 1, "session_idle_seconds": 10 * AWAY_SECONDS}
    with (
        launched_kafka(settings=QUICK_CLEANER) as cluster,
        service_nodes(tmp_path, {}, {}, cluster=cluster, **settings) as (away, other),
    ):
        away.start()
        async with Client(away) as client:
            streams = [await client.open() for _ in range(SESSIONS)]
            for seed, stream in enumerate(streams):
                await client.put(stream, seed)
                await client.status(stream.session, count="1")
        assert away.stop() == 0, away.tail()
        other.start()
        await _forget(cluster, other, streams)
        assert other.stop() == 0, other.tail()
        away.environment |= ahead(AWAY_SECONDS)
        away.start()
        async with Client(away) as client:
            assert {(await client.status(one.session)).status_code for one in streams} == {404}
