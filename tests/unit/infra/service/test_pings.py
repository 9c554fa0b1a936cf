"""When sockets are pinged."""

from typing import Final
from unittest.mock import Mock

from websockets.protocol import Protocol, Side

from app.http.sockets import Receiver
from infra.service.connections import ConnectionLimits, Connections
from infra.service.socket_connection import PINGS, SocketConnection

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
