"""The load's end of a live socket: its frames, and the service's frames cut anywhere."""

import asyncio
import threading
import time
from socket import create_server
from types import SimpleNamespace
from typing import cast

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from benchmarks.cases import live
from benchmarks.client import LoadClient, LoadError
from benchmarks.plans import Target
from benchmarks.sockets import SocketClient, message

WINDOW = b'{"type":"window","tags":[' + b"0," * 100 + b"0]}"
SAID = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + b"".join(
    Frame(kind, data).serialize(mask=False)
    for kind, data in (
        (Opcode.TEXT, b'{"type":"hello"}'),
        (Opcode.TEXT, WINDOW),
        (Opcode.PING, b""),
        (Opcode.TEXT, WINDOW),
    )
)


def heard(pieces: list[bytes]) -> tuple[int, list[bytes]]:
    """Return the counted windows, and the bytes sent."""

    async def scene() -> tuple[int, list[bytes]]:
        sent: list[bytes] = []
        client = SocketClient(cast(LoadClient, SimpleNamespace(target=Target(1, ()), session="a")))
        client.connection_made(cast(asyncio.Transport, SimpleNamespace(write=sent.append)))
        for piece in pieces:
            client.data_received(piece)
        return await client.windows(0), sent[1:]

    return asyncio.run(scene())


@pytest.mark.parametrize("cut", range(1, len(SAID), 7))
def test_frames_split_anywhere_are_parsed(cut: int) -> None:
    assert heard([SAID[:cut], SAID[cut:]]) == (2, [b"\x8a\x80\0\0\0\0"])


def test_ended_or_rejected_socket_raises_load_error() -> None:
    for end in (
        b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
        SAID + Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=False) + b"  ",
    ):
        with pytest.raises(LoadError, match="the socket ended"):
            heard([end])


def test_ended_idle_socket_fails_its_row() -> None:
    def serve() -> None:
        with listener.accept()[0] as socket:
            socket.recv(65536)
            socket.sendall(SAID)
            with listener.accept()[0] as other:
                other.recv(65536)
                other.sendall(SAID)

    def hold(port: int) -> None:
        with live._idle_sockets(Target(port, ()), 2):
            serving.join()
            time.sleep(0.5)

    with create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises((AssertionError, OSError), match=r"an idle socket was ended|reset|Broken pipe"):
            hold(listener.getsockname()[1])


def test_server_parses_generated_message() -> None:
    server = Protocol(Side.SERVER, state=State.OPEN)
    server.receive_data(message(b"a" * 16_000))
    assert server.events_received() == [Frame(Opcode.BINARY, b"a" * 16_000)]
