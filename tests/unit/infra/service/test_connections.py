"""Connections share the loop: senders take turns, pings are spread, and startup checks uvicorn's private members."""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from unittest import mock
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState
from websockets.protocol import Protocol, Side

from app.http.sockets import Receiver
from infra.service import connections, service
from infra.service.connections import DISCARD_RATE, ConnectionLimits, Connections
from infra.service.http_hooks import METHODS
from infra.service.http_protocol import ClientConnection
from infra.service.loop_turns import ALONE, HELD_BYTES, SHARED, LoopTurns
from infra.service.socket_connection import PINGS, SocketConnection
from infra.service.tunnel import End
from infra.settings import Settings
from tests.waiting import turn
from topics.errors import ServiceError


async def iterate() -> None:
    await asyncio.sleep(0)


async def handled(turns: LoopTurns, senders: list[str]) -> list[list[str]]:
    """Return whose input each iteration of the loop handles, if all of it arrives at once."""
    iterations: list[list[str]] = [[]]
    for sender in senders:
        if turns.take(sender, 100.0, 1):
            iterations[-1].append(sender)
        else:
            turns.wait(sender, 1, lambda sender=sender: iterations[-1].append(sender))  # type: ignore[misc]
    while sum(map(len, iterations)) < len(senders):
        iterations.append([])
        await iterate()
    return [iteration for iteration in iterations if iteration]


@pytest.mark.parametrize("senders", [["loud"] * 100 + ["quiet", "loud", "quiet"], ["loud"] * 9 + ["quiet"] * 2])
async def test_quiet_sender_does_not_wait_for_loud_one(senders: list[str]) -> None:
    turns = LoopTurns()
    await handled(turns, ["quiet", "loud"])
    await iterate()
    await iterate()
    iterations = await handled(turns, senders)
    order = [sender for iteration in iterations for sender in iteration]
    assert order.count("quiet") == 2
    assert order.index("quiet") < 4 * SHARED
    assert max(map(len, iterations)) <= 2 * SHARED


async def test_new_sender_ends_large_turns_of_the_only_one() -> None:
    turns = LoopTurns()
    turns.take("loud", 0.0, 1)
    await iterate()
    iterations = await handled(turns, ["loud"] * (ALONE + 9) + ["quiet"] + ["loud"] * 50)
    assert len(iterations[0]) == ALONE
    assert max(map(len, iterations[1:])) <= 2 * SHARED


async def test_new_connections_do_not_count_as_another_sender() -> None:
    iterations = await handled(LoopTurns(), ["", "loud"] * (ALONE // 2))
    assert len(iterations[0]) == ALONE


async def test_waiting_bytes_are_bounded() -> None:
    turns = LoopTurns()
    taken = [turns.take("loud", 0.0, HELD_BYTES) for _ in range(ALONE + 1)]
    turns.wait("loud", HELD_BYTES, lambda: None)
    assert taken == [True] * ALONE + [False]
    assert turns.take("loud", 0.0, 1)


async def test_discarding_connections_share_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes of refused bodies must not take the time of requests."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
    door = Connections(ConnectionLimits(1000, None, 30.0, 1))
    pauses = [door.discard(DISCARD_RATE // 100) for _ in range(100)]
    assert pauses == sorted(pauses)
    assert 0.005 < pauses[0] <= 0.01
    assert 0.9 < pauses[-1] <= 1.0


def test_overridden_methods_are_checked() -> None:
    overridden = {name for name in vars(ClientConnection) if name in vars(HttpToolsProtocol) and name[:2] != "__"}
    assert overridden <= set(METHODS[HttpToolsProtocol])


@pytest.mark.parametrize("name", ["on_body", "_start_asgi_task", "_unset_keepalive_if_required"])
def test_missing_method_prevents_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, name)
    with pytest.raises(ServiceError, match=f"no HttpToolsProtocol.{name}"):
        service._server(None, Settings(), mock.Mock())


IDLE: Final = 30.0


async def test_pings_of_sockets_that_came_together_are_spread() -> None:
    door = Connections(ConnectionLimits(1000, None, IDLE, 1))
    transport, pinged = Mock(get_write_buffer_size=lambda: 0, is_closing=lambda: False), list[float]()
    transport.write.side_effect = lambda data: pinged.append(door.now)
    sockets = [
        SocketConnection(transport, Protocol(Side.SERVER), Mock(spec=Receiver), door, Mock(), "10.0.0.1")
        for _ in range(200)
    ]
    while door.now < IDLE / PINGS:
        door.now += 1.0
        for socket in sockets:
            socket.look(door.now)
    assert len(pinged) == len(sockets), "each once"
    assert max(pinged.count(second) for second in pinged) < len(sockets) / 2


@pytest.mark.parametrize("begins", ["reading", "sending"])
async def test_idle_socket_is_closed_on_time(monkeypatch: pytest.MonkeyPatch, begins: str) -> None:
    """Never early, and at the next look."""
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.5)
    closed, now = asyncio.Event(), 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    door = Connections(ConnectionLimits(1000, None, 0.75, 1))
    transport = Mock(get_write_buffer_size=lambda: 0, is_closing=lambda: False)
    receiver = Mock(spec=Receiver, ended=closed.set, closing_error=lambda code, text: b"{}")
    watching = asyncio.create_task(door.watch())
    socket = SocketConnection(transport, Protocol(Side.SERVER), receiver, door, Mock(), "10.0.0.1")
    socket.take_over(b"", b"")
    if begins == "sending":
        socket.resume_reading()
    for now in (0.0, 0.5, 0.95):  # noqa: B007 (it is the time of the loop)
        await turn()
    if begins == "sending":
        socket.data_received(b"")
    else:
        socket.resume_reading()
    while not closed.is_set():
        now += 0.05
        await turn()
    watching.cancel()
    assert 0.95 + 0.75 <= now <= 0.95 + 0.75 + 0.5


class Unread(asyncio.Transport):
    """A transport whose client reads only what a test takes."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.ended = False

    def write(self, data: Any) -> None:
        self.data += data

    def get_write_buffer_size(self) -> int:
        return len(self.data)

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.ended = True


async def test_socket_that_takes_nothing_is_closed_on_time() -> None:
    door, transport = Connections(ConnectionLimits(1000, None, IDLE, 1)), Unread()
    receiver = Mock(spec=Receiver, closing_error=lambda code, text: b"{}")
    socket = SocketConnection(transport, Protocol(Side.SERVER), receiver, door, Mock(), "10.0.0.1")
    socket.look(1.01)
    socket.send([b"x"])  # Written after this look, perhaps just before the next one.
    first = now = 2.02
    while not receiver.ended.called:
        socket.look(now)
        now += 1.01
    assert first + IDLE < now - 1.01 < first + IDLE + 1.01


def _socket(transport: Unread, door: Connections) -> tuple[connections.Guarded, Callable[[bytes], object]]:
    receiver = Mock(spec=Receiver, ended=transport.abort, closing_error=lambda code, text: b"{}")
    socket = SocketConnection(transport, Protocol(Side.SERVER), receiver, door, Mock(), "10.0.0.1")
    return socket, lambda data: socket.send([data])


def _answer(transport: Unread, door: Connections) -> tuple[connections.Guarded, Callable[[bytes], object]]:
    connection = ClientConnection(uvicorn.Config(Mock(), log_config=None), ServerState(), {}, door=door)
    connection.connection_made(transport)
    connection._receiving = False  # the answer is under way
    return connection, connection.transport.write


def _tunnel(transport: Unread, door: Connections) -> tuple[connections.Guarded, Callable[[bytes], object]]:
    end = End(door)
    end.connection_made(transport)
    return end, end.write


@pytest.mark.parametrize("made", [_socket, _answer, _tunnel])
@pytest.mark.parametrize("reads", [20, 0])
async def test_slow_reader_may_fall_behind(
    made: Callable[[Unread, Connections], tuple[connections.Guarded, Callable[[bytes], object]]], reads: int
) -> None:
    """Only a client that reads nothing is ended."""
    transport, door = Unread(), Connections(ConnectionLimits(1000, None, IDLE, 1))
    connection, write = made(transport, door)
    for second in range(3 * round(IDLE)):
        if isinstance(connection, SocketConnection):
            connection.resume_reading()
            connection.data_received(b"\x8a\x80....")  # a pong
        write(b"x" * 50)
        await iterate()
        transport.data = transport.data[reads:]
        door.now = float(second)
        connection.look(door.now)
    assert len(transport.data) > 1000
    assert transport.ended == (not reads)
