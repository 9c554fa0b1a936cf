"""Requests that ask for WebSocket: accepted here, or forwarded to the node that owns the session."""

from http import HTTPStatus
from typing import Final

from starlette.types import Scope
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.protocol import Protocol as FrameProtocol
from websockets.protocol import Side
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from app.http.errors import ClientGone
from app.http.replies import Reply
from app.http.sockets import PROTOCOLS, NotWebSocket, Receiver
from infra.transport.lanes import head_of
from infra.transport.socket_connection import SocketConnection
from infra.transport.tunnel import End, Upgradable, open_tunnel

#: Request headers of the handshake. Compression is not offered.
_HANDSHAKE: Final = frozenset({b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version", PROTOCOLS})


class SocketUpgrade:
    """Implements `app.http.sockets.Upgrade`."""

    def __init__(self, connection: Upgradable, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope

    @property
    def idle_seconds(self) -> float:
        return self._connection.door.limits.idle_seconds

    def check(self) -> None:
        """Check the handshake.

        Raises:
            NotWebSocket: the request does not follow RFC 6455.
        """
        self._answer(None)

    def accept(self, protocol: str | None, receiver: Receiver, longest: int) -> SocketConnection:
        """Answer 101 and take over the connection.

        Raises:
            NotWebSocket: the request does not follow RFC 6455.
            ClientGone: the client has hung up.
        """
        answer = self._answer(protocol)
        transport = self._connection.hand_over()
        if transport is None:
            raise ClientGone
        frames = FrameProtocol(Side.SERVER, max_size=longest)
        door, state = self._connection.door, self._connection.server_state
        connection = SocketConnection(transport, frames, receiver, door, state, self._connection.address)
        connection.take_over(answer.serialize(), self._connection.early)
        return connection

    def _answer(self, protocol: str | None) -> Response:
        handshake = ServerProtocol(subprotocols=[Subprotocol(protocol)] if protocol else None)
        handshake.parser.close()  # It refers to the handshake.
        headers = Headers(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._scope["headers"]
            if name in _HANDSHAKE
        )
        answer = handshake.accept(Request("", headers, self._scope["method"]))
        if answer.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            raise NotWebSocket(f"not WebSocket: {handshake.handshake_exc}")
        return answer

    async def pass_on(self, url: str, headers: list[tuple[bytes, bytes]]) -> Reply | End | None:
        """Forward the request to another node; once it accepts, relay all bytes both ways.

        Return None if a lane of this machine has the connection now, and nothing is left to do here.

        Raises:
            Unavailable: the node does not answer.
            ClientGone: the client has hung up.
        """
        connection, lanes = self._connection, self._connection.door.lanes
        # A socket may be open for days: a tunnel to a lane that is just restarting would stay as long.
        lane = None if lanes is None else await lanes.serving(url)
        if lane is not None and connection.give(lane, head_of(self._scope) + connection.early):
            return None
        return await open_tunnel(connection, self._scope, url, headers)
