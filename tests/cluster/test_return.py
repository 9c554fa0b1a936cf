"""A node that restarts at once under another address, and a second node on the same data directory."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.cluster.nodes import service_nodes
from tests.ports import free_port
from tests.process import ServiceProcess
from tests.recovery.load import Client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: The broker's timeout for an unknown node, and the limit for a restart.
SESSION_SECONDS = 60
SECONDS = 50.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A single node on a Kafka."""
    directory = tmp_path_factory.mktemp("return")
    with service_nodes(directory, {}, kafka_session_seconds=SESSION_SECONDS) as (node,):
        yield node.start()


async def _chunk(node: ServiceProcess, session: str | None = None) -> str:
    async with Client(node) as client:
        stream = await client.open()
        await client.put(stream, 1)
        if session is not None:
            assert (await client.status(session)).status_code == 200
        return stream.session


@pytest.mark.parametrize(("kill", "moved"), [(True, "port"), (False, "advertised")], ids=["killed", "stopped"])
def test_restart_under_new_address_is_fast(node: ServiceProcess, kill: bool, moved: str) -> None:
    session = asyncio.run(_chunk(node))
    if kill:
        node.kill()
    else:
        assert node.stop() == 0, node.tail()
    if moved == "port":
        node.move()
    else:
        node.environment["EARSHOT_ADVERTISE"] = f"http://localhost:{node.port}"
    began = time.monotonic()
    node.start()
    assert time.monotonic() - began < SECONDS
    node.environment.pop("EARSHOT_ADVERTISE", None)
    asyncio.run(_chunk(node, session))


def test_second_node_on_data_directory_is_rejected(node: ServiceProcess) -> None:
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
