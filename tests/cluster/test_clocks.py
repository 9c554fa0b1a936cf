"""Nodes with different clocks: the log uses the brokers' time, so no session ends early, and absences do not count."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.nodes import ahead, service_nodes, start
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

IDLE_SECONDS = 12
AHEAD_SECONDS = 3600


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    with service_nodes(tmp_path, {}, {}, session_idle_seconds=IDLE_SECONDS) as nodes:
        nodes[1].environment |= ahead(AHEAD_SECONDS)
        start(*nodes)
        yield nodes


async def _use(client: Client, stream: Stream) -> None:
    """Restart its idle time again and again, whatever another partition does."""
    while True:
        await client.put(stream, 1)
        await asyncio.sleep(1)


async def _gone(client: Client, *streams: Stream) -> None:
    async with asyncio.timeout(10 * IDLE_SECONDS):
        for stream in streams:
            while (await client.status(stream.session)).status_code != 404:  # noqa: ASYNC110 (it is in another process)
                await asyncio.sleep(0.5)


async def _all_there(client: Client, streams: list[Stream]) -> bool:
    return {(await client.status(stream.session)).status_code for stream in streams} == {200}


async def _takeover(dies: ServiceProcess, left: ServiceProcess) -> list[Stream]:
    """Open sessions on both nodes, kill one, and find all in use at the other when an idle one has been deleted."""
    async with Client(dies) as there, Client(left) as here:
        idle = await there.open()
        streams = [await client.open() for client in (there, here) for _ in range(4)]
        using = asyncio.gather(*(_use(here, stream) for stream in streams))
        while not all(stream.chunks for stream in streams):  # noqa: ASYNC110 (another task sends them)
            await asyncio.sleep(0.1)
        dies.kill()
        await _gone(here, idle)
        assert await _all_there(here, streams)
        using.cancel()
        with suppress(asyncio.CancelledError):
            await using
        return streams


async def _expiry(node: ServiceProcess, streams: list[Stream]) -> None:
    """They outlive an absence as long as their idle time, and then it begins."""
    async with Client(node) as client:
        # What is due is gone by then.
        await asyncio.sleep(1.5)
        assert await _all_there(client, streams)
        await _gone(client, *streams)


def test_sessions_survive_takeover_despite_clock_skew(nodes: list[ServiceProcess]) -> None:
    """A node whose clock is an hour ahead sweeps no session too early, nor does the other one afterwards."""
    right, ahead = nodes
    asyncio.run(_takeover(right, ahead))
    right.start()
    streams = asyncio.run(_takeover(ahead, right))
    right.kill()
    asyncio.run(asyncio.sleep(IDLE_SECONDS))
    right.start()
    asyncio.run(_expiry(right, streams))
