"""A node that comes back at once, under another address; and a second one that finds its data directory taken."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import service_nodes
from tests.process import ServiceProcess, free_port
from tests.recovery.load import Client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: What a node may take; on a busy machine, three times what it took under its old address.
SECONDS = 5.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A node, alone on a Kafka that would wait for it for a minute."""
    with service_nodes(tmp_path, {}, kafka_session_seconds=60) as (node,):
        yield node.start()


def restarted(node: ServiceProcess, kill: bool) -> float:
    """Restart a node at once; return the seconds from its start until it serves."""
    if kill:
        node.kill()
    else:
        assert node.stop() == 0, node.tail()
    began = time.monotonic()
    node.start()
    return time.monotonic() - began


async def _chunk(node: ServiceProcess, session: str | None = None) -> str:
    async with Client(node) as client:
        stream = await client.open()
        await client.put(stream, 1)
        if session is not None:
            assert (await client.ask("GET", f"/audio_sessions/{session}/status")).status_code == 200
        return stream.session


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("moved", ["port", "advertised"])
def test_another_address_makes_no_difference(node: ServiceProcess, kill: bool, moved: str) -> None:
    session = asyncio.run(_chunk(node))
    usual = restarted(node, kill)
    if moved == "port":
        node.move()
    else:
        node.environment["EARSHOT_ADVERTISE"] = f"http://localhost:{node.port}"
    assert restarted(node, kill) < max(SECONDS, 3 * usual)
    asyncio.run(_chunk(node, session))


def test_two_nodes_on_one_data_directory(node: ServiceProcess) -> None:
    """The second is refused in one line that names the first, which goes on."""
    environment = {**node.environment, "EARSHOT_PORT": str(free_port())}
    second = subprocess.run(
        [sys.executable, "-m", "infra.cli", "serve"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert second.returncode == 1
    [line] = second.stderr.splitlines()
    assert node.process is not None
    assert line.startswith("earshot: ")
    assert f"{node.data}" in line
    assert f"is in use by process {node.process.pid}" in line
    asyncio.run(_chunk(node))
