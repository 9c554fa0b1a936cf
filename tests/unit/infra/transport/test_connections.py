"""Connections share the loop: pings are spread, and startup checks uvicorn's private members."""

import asyncio
from collections.abc import Callable, Iterator
from socket import socketpair
from typing import Any, Final
from unittest import mock
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState
from websockets.protocol import Protocol, Side

from app.http.sockets import Receiver
from app.http.turns import LoopTurns
from infra.service import doors
from infra.settings import Settings
from infra.transport import connections, socket_connection
from infra.transport.connections import DISCARD_RATE, ConnectionLimits, Connections
from infra.transport.http_hooks import METHODS
from infra.transport.http_protocol import ClientConnection
from infra.transport.request_parser import RequestParser
from infra.transport.socket_connection import PINGS, SMALL, SocketConnection
from infra.transport.tunnel import End
from tests.waiting import turn, until
from topics.errors import ServiceError
from topics.turns import Holder

HOLDER = Holder("organization", "project")


async def iterate() -> None:
    await asyncio.sleep(0)


async def test_discarding_connections_share_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes of refused bodies must not take the time of requests."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
    door = Connections(ConnectionLimits(1000, None, 30.0, 1))
    pauses = [door.discard(DISCARD_RATE // 100) for _ in range(100)]
    assert pauses == sorted(pauses)
    assert 0.005 < pauses[0] <= 0.01
    assert 0.9 < pauses[-1] <= 1.0


def test_overridden_methods_are_checked() -> None:
    own = {name for one in (ClientConnection, RequestParser) for name in vars(one) if name[:2] != "__"}
    assert own & vars(HttpToolsProtocol).keys() <= set(METHODS[HttpToolsProtocol])


@pytest.mark.parametrize("name", ["on_body", "_start_asgi_task", "_unset_keepalive_if_required"])
def test_missing_method_prevents_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, name)
    with pytest.raises(ServiceError, match=f"no HttpToolsProtocol.{name}"):
        doors._server(None, Settings(), mock.Mock())


IDLE: Final = 30.0


@pytest.fixture
def line() -> Iterator[tuple[Any, Any]]:
    """A connected socket: connections are read by their descriptors."""
    here, there = socketpair()
    with here, there:
        here.setblocking(False)
        yield here, there


def transport_of(line: tuple[Any, Any]) -> Mock:
    return Mock(get_write_buffer_size=lambda: 0, is_closing=lambda: False, get_extra_info=lambda name: line[0])


async def test_pings_of_sockets_that_came_together_are_spread(line: tuple[Any, Any]) -> None:
    door = Connections(ConnectionLimits(1000, None, IDLE, 1))
    transport, pinged = transport_of(line), list[float]()
    transport.write.side_effect = lambda data: pinged.append(door.now)
    sockets = [
        SocketConnection(transport, Protocol(Side.SERVER), Mock(spec=Receiver, holder=HOLDER), door, Mock(), "10.0.0.1")
        for _ in range(200)
    ]
    while door.now < IDLE / PINGS:
        door.now += 1.0
        for socket in sockets:
            socket.check(door.now)
    assert len(pinged) == len(sockets), "each once"
    assert max(pinged.count(second) for second in pinged) < len(sockets) / 2


@pytest.mark.parametrize("begins", ["reading", "sending"])
async def test_idle_socket_is_closed_on_time(
    monkeypatch: pytest.MonkeyPatch, line: tuple[Any, Any], begins: str
) -> None:
    """Never early, and at the next look."""
    monkeypatch.setattr(connections, "POLL_SECONDS", 0.5)
    closed, now = asyncio.Event(), 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    door = Connections(ConnectionLimits(1000, None, 0.75, 1))
    transport = transport_of(line)
    receiver = Mock(spec=Receiver, holder=HOLDER, ended=closed.set, closing_error=lambda code, text: b"{}")
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


async def test_client_whose_input_waits_for_its_turn_is_not_late(
    monkeypatch: pytest.MonkeyPatch, line: tuple[Any, Any]
) -> None:
    """However long others take: what it has sent may be what it is asked for."""
    works: list[Callable[[], None]] = []
    monkeypatch.setattr(LoopTurns, "is_free", lambda turns: False)
    monkeypatch.setattr(LoopTurns, "put", lambda turns, holder, work: works.append(work))
    door, receiver = Connections(ConnectionLimits(1000, None, IDLE, 1)), Mock(spec=Receiver, holder=HOLDER)
    receiver.closing_error = lambda code, text: b"{}"
    socket = SocketConnection(transport_of(line), Protocol(Side.SERVER), receiver, door, Mock(), "10.0.0.1")
    socket.resume_reading()
    line[1].send(b"\x8a\x80....")  # a pong
    await until(lambda: works)
    socket.check(1000.0)
    receiver.ended.assert_not_called()
    works[0]()
    socket.check(2000.0)
    receiver.ended.assert_called_once_with()


class Unread(asyncio.Transport):
    """A transport whose client reads only what a test takes."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.ended = False
        self._lines = socketpair()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._lines[0] if name == "socket" else default

    def __del__(self) -> None:
        for line in self._lines:
            line.close()

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
    receiver = Mock(spec=Receiver, holder=HOLDER, closing_error=lambda code, text: b"{}")
    socket = SocketConnection(transport, Protocol(Side.SERVER), receiver, door, Mock(), "10.0.0.1")
    socket.check(1.01)
    socket.send([b"x"])  # Written after this look, perhaps just before the next one.
    first = now = 2.02
    while not receiver.ended.called:
        socket.check(now)
        now += 1.01
    assert first + IDLE < now - 1.01 < first + IDLE + 1.01


async def test_closed_socket_holds_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the rest of it waits for another turn."""
    door = Connections(ConnectionLimits(1000, None, IDLE, 1))
    monkeypatch.setattr(socket_connection, "SLICE_SECONDS", 0.0)
    receiver = Mock(spec=Receiver, holder=HOLDER)
    socket = SocketConnection(Unread(), Protocol(Side.SERVER), receiver, door, Mock(), "10.0.0.1")
    socket.resume_reading()
    socket.data_received(bytes(2 * SMALL))
    receiver.holds.assert_called_once_with(2 * SMALL)
    socket.close(1013, "", [])
    socket.data_received(bytes(2 * SMALL))
    assert not socket._backlog


def _socket(transport: Unread, door: Connections) -> tuple[connections.Guarded, Callable[[bytes], object]]:
    receiver = Mock(spec=Receiver, holder=HOLDER, ended=transport.abort, closing_error=lambda code, text: b"{}")
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
        connection.check(door.now)
    assert len(transport.data) > 1000
    assert transport.ended == (not reads)
