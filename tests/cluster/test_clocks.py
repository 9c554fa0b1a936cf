"""Nodes with different clocks: the log uses the brokers' time, so no session ends early."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import ahead, service_nodes
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: A takeover can take long on a busy machine, and sessions must outlive it.
IDLE_SECONDS = 45
AHEAD_SECONDS = 3600


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    with service_nodes(tmp_path, {}, {}, session_idle_seconds=IDLE_SECONDS) as nodes:
        nodes[1].environment |= ahead(AHEAD_SECONDS)
        yield [node.start() for node in nodes]


async def _put(client: Client, streams: list[Stream]) -> None:
    for stream in streams:
        await client.put(stream, 1)


async def _takeover(dies: ServiceProcess, left: ServiceProcess) -> None:
    """Open sessions on both nodes, kill one, and find all in use at the other when an idle one has been deleted."""
    async with Client(dies) as there, Client(left) as here:
        idle = await there.open()
        streams = [await client.open() for client in (there, here) for _ in range(4)]
        await _put(here, streams)
        dies.kill()
        async with asyncio.timeout(3 * IDLE_SECONDS):
            while (await here.status(idle.session)).status_code != 404:
                # These uploads restart the idle time.
                await _put(here, streams)
                await asyncio.sleep(1)
        assert [(await here.status(one.session)).status_code for one in streams] == [200] * len(streams)


def test_sessions_survive_takeover_despite_clock_skew(nodes: list[ServiceProcess]) -> None:
    """A node whose clock is an hour ahead sweeps no session too early, nor does the other one afterwards."""
    right, ahead = nodes
    asyncio.run(_takeover(right, ahead))
    right.start()
    asyncio.run(_takeover(ahead, right))
