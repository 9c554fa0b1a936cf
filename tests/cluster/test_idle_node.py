"""More nodes than partitions: one that owns nothing does not promise what it cannot keep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cluster.nodes import service_nodes
from tests.process import KEY, ServiceProcess
from tests.recovery.load import CONTENT_TYPE
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WATCH_SECONDS = 15.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    """Two nodes and one partition; the second may never be ready."""
    with service_nodes(tmp_path, {}, {}, partitions=1) as nodes:
        nodes[0].start()
        nodes[1].start(0)
        wait_for(lambda: answers(nodes[1]), 120)
        yield nodes


def answers(node: ServiceProcess) -> bool:
    """Tell whether a node talks HTTP."""
    try:
        return httpx2.get(f"{node.url}/healthz", timeout=2).status_code > 0
    except httpx2.TransportError:
        return False


async def _unkept(nodes: list[ServiceProcess]) -> list[str]:
    """Return what was wrong: creations refused by a node that had just said, and says again, that it is ready."""
    body, wrong = {"type": "stream", "content_type": CONTENT_TYPE}, []
    deadline = time.monotonic() + WATCH_SECONDS
    async with httpx2.AsyncClient(timeout=10) as http:
        while time.monotonic() < deadline:
            for number, node in enumerate(nodes):
                before = await http.get(f"{node.url}/readyz")
                made = await http.post(f"{node.url}/audio_sessions/", json=body, headers={"X-Api-Key": KEY})
                after = await http.get(f"{node.url}/readyz")
                if before.status_code == after.status_code == 200 != made.status_code:
                    wrong.append(f"node {number}: ready, and {made.status_code} {made.text}")
            await asyncio.sleep(0.2)
    return wrong


def test_a_node_that_is_ready_takes_sessions(nodes: list[ServiceProcess]) -> None:
    assert asyncio.run(_unkept(nodes)) == []
