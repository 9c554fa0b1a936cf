"""More nodes than partitions: a node without partitions must not claim to be ready."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cluster.nodes import service_nodes
from tests.process import KEY, ServiceProcess
from tests.recovery.load import CONTENT_TYPE
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: Requests to both nodes after the second one knows that it owns nothing.
ROUNDS = 20


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    """Two nodes and one partition; the second may never become ready."""
    with service_nodes(tmp_path, {}, {}, partitions=1) as nodes:
        nodes[0].start()
        nodes[1].start(0)
        wait_for(lambda: "node.assigned" in nodes[1].tail(1000), 120)
        yield nodes


async def _unkept(nodes: list[ServiceProcess]) -> tuple[list[int], list[str]]:
    """Return the number of creations at each node, and those refused by a node that reported ready before and after."""
    body, wrong, created = {"type": "stream", "content_type": CONTENT_TYPE}, [], [0, 0]
    async with httpx2.AsyncClient(timeout=10) as http:
        for _ in range(ROUNDS):
            for number, node in enumerate(nodes):
                before = await http.get(f"{node.url}/readyz")
                made = await http.post(f"{node.url}/audio_sessions/", json=body, headers={"X-Api-Key": KEY})
                after = await http.get(f"{node.url}/readyz")
                created[number] += made.status_code == 200
                if before.status_code == after.status_code == 200 != made.status_code:
                    wrong.append(f"node {number}: ready, and {made.status_code} {made.text}")
            await asyncio.sleep(0.1)
    return created, wrong


def test_ready_node_accepts_sessions(nodes: list[ServiceProcess]) -> None:
    created, wrong = asyncio.run(_unkept(nodes))
    assert wrong == []
    assert created[0] == ROUNDS
