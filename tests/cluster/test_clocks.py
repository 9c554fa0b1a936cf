"""Nodes whose clocks differ: the log's time is the brokers', so nobody's sessions end early."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import ahead, service_nodes
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

IDLE_SECONDS = 120
AHEAD_SECONDS = 3600
#: The sweeper comes twenty times in the idle time.
SWEEPS_SECONDS = IDLE_SECONDS / 20 * 2.5


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    """A node with the right time, and one an hour ahead."""
    with service_nodes(tmp_path, {}, {}, session_idle_seconds=IDLE_SECONDS) as nodes:
        nodes[1].environment |= ahead(AHEAD_SECONDS)
        yield [node.start() for node in nodes]


async def _open(right: ServiceProcess, ahead: ServiceProcess) -> list[Stream]:
    async with Client(right) as first, Client(ahead) as second:
        streams = [await (first if number % 2 else second).open() for number in range(8)]
        for stream in streams:
            await first.put(stream, 1)
        return streams


async def _statuses(node: ServiceProcess, streams: list[Stream]) -> list[int]:
    async with Client(node) as client:
        return [(await client.ask("GET", f"/audio_sessions/{one.session}/status")).status_code for one in streams]


@pytest.mark.parametrize("dies", [0, 1], ids=["to the clock that is ahead", "to the right clock"])
def test_sessions_outlive_a_takeover(nodes: list[ServiceProcess], dies: int) -> None:
    """Sweeps of a node whose clock is an hour ahead find nothing that is due."""
    streams = asyncio.run(_open(*nodes))
    nodes[dies].kill()
    left = nodes[1 - dies]
    assert asyncio.run(_statuses(left, streams)) == [200] * len(streams)

    async def after_sweeps() -> list[int]:
        await asyncio.sleep(SWEEPS_SECONDS)
        return await _statuses(left, streams)

    assert asyncio.run(after_sweeps()) == [200] * len(streams)
