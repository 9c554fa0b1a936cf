"""A node that restarts at once under another address."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.cluster.nodes import service_nodes
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
