"""A broker that is frozen: it accepts connections, and answers nothing."""

import asyncio
import socket
from typing import Any

import pytest
from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaError, RequestTimedOutError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest
from aiokafka.structs import BrokerMetadata

from streams.membership import client as module
from streams.membership.client import BrokerClient

SECONDS = 0.05
HEARTBEAT = HeartbeatRequest("group", 1, "member")
JOIN = JoinGroupRequest("group", 1000, 1000, "", "", "consumer", [])


class Frozen:
    """A connection to such a broker."""

    def __init__(self) -> None:
        self.closed = False

    def connected(self) -> bool:
        return not self.closed

    def send(self, request: Any, expect_response: bool) -> asyncio.Future[object]:
        return asyncio.get_running_loop().create_future()

    def close(self, reason: object) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", SECONDS)


def made() -> BrokerClient:
    return BrokerClient(bootstrap_servers="127.0.0.1:1", request_timeout_ms=60_000)


async def test_answer_is_given_up_and_connection_is_made_anew() -> None:
    client = made()
    frozen = client._conns[1, ConnectionGroup.COORDINATION] = Frozen()
    with pytest.raises(RequestTimedOutError):
        await client.send(1, HEARTBEAT, group=ConnectionGroup.COORDINATION)
    assert frozen.closed


async def test_join_waits_for_other_nodes() -> None:
    client = made()
    frozen = client._conns[1, ConnectionGroup.COORDINATION] = Frozen()
    joining = asyncio.create_task(client.send(1, JOIN, group=ConnectionGroup.COORDINATION))
    await asyncio.sleep(3 * SECONDS)
    assert not joining.done()
    assert not frozen.closed
    joining.cancel()


async def test_connection_that_is_not_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = made()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        monkeypatch.setattr(client.cluster, "broker_metadata", lambda id: BrokerMetadata(id, host, port, None))
        with pytest.raises(KafkaError):
            async with asyncio.timeout(30):
                await client.send(1, HEARTBEAT)
    await client.close()
