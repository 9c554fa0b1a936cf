"""Connections of other nodes that use TLS."""

import asyncio
import socket
from functools import partial
from typing import Any, cast

from infra.transport.connections import Connections
from infra.transport.http_protocol import ClientConnection
from infra.transport.tunnel import End


class TlsConnection(End):
    """Relays a connection with TLS to a `ClientConnection` without it, through a pair of sockets.

    So nothing behind it needs to know of TLS: it reads sockets itself.
    """

    def __init__(self, *args: Any, door: Connections, **kwargs: Any) -> None:
        super().__init__()
        self._served = partial(ClientConnection, *args, door=door, **kwargs)
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        outer = cast(asyncio.Transport, transport)
        outer.pause_reading()
        self._joining = asyncio.get_running_loop().create_task(self._join(outer), name="TLS of a node")

    async def _join(self, outer: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        _, inner = await loop.create_connection(End, sock=ours)
        await loop.connect_accepted_socket(self._served, theirs)
        inner.join(self, b"")
        self.join(inner, b"")
        if outer.is_closing():
            inner.close()
        else:
            outer.resume_reading()
