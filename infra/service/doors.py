"""The addresses at which a process answers: the service's, the operator's, and those for other nodes and lanes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import msgspec
import structlog
import uvicorn
from starlette.applications import Starlette

from infra.service import listener
from infra.service.lanes import Orders
from infra.service.node_tls import certificate, trust
from infra.service.options import connection_limits
from infra.settings import Settings
from infra.transport.connections import Connections
from infra.transport.http_hooks import check_hooks
from infra.transport.http_protocol import ClientConnection
from infra.transport.lanes import Lanes
from infra.transport.tls import TlsConnection
from infra.urls import Embedded, host_and_port, http_url, local_url
from topics.tally import Tallies

log = structlog.get_logger("earshot")

#: The most connections to the operator's address.
OPERATORS: Final = 64


class Doors:
    """Listens at the addresses of a process, and serves its connections. Loop only."""

    def __init__(
        self,
        settings: Settings,
        orders: Orders | None,
        tallies: Tallies,
        ended: Callable[[bool], None],
    ) -> None:
        """Serve as a lane by `orders`, or alone.

        `ended` is called when a server has stopped, with whether it failed.
        """
        self.settings = settings
        self._orders, self._ended = orders, ended
        self._withdraw: Callable[[], None] = lambda: None
        self.connections = Connections(connection_limits(settings), tallies("connections"))
        # The operator and the other lanes have bounds of their own, to get in when clients do not.
        self._operators = Connections(msgspec.structs.replace(self.connections.limits, connections=OPERATORS))
        self._neighbours = Connections(msgspec.structs.replace(self.connections.limits, per_address=None))
        self.trust, self._tls = trust(settings), certificate(settings)
        self._sockets: list[socket.socket] = []
        #: Sockets of the operator's address; empty if the operator's interface shares the main one.
        self._admin_sockets: list[socket.socket] = []
        #: Sockets for other nodes, with TLS; empty if they use the main ones.
        self._node_sockets: list[socket.socket] = []

    def listen(self, stack: contextlib.AsyncExitStack) -> None:
        """Take the ports, as far as a supervisor has not, until the stack closes.

        Raises:
            EarshotError: a port cannot be used.
        """
        settings = self.settings
        stack.callback(lambda: listener.close([*self._sockets, *self._admin_sockets, *self._node_sockets]))
        if self._orders is not None:
            self._admin_sockets = [socket.socket(fileno=descriptor) for descriptor in self._orders.operators]
            return
        self._sockets = listener.listen(settings.host, settings.port)
        if settings.admin_listen is not None:
            self._admin_sockets = listener.listen(*host_and_port(settings.admin_listen), "admin_listen")
        if settings.node_listen is not None:
            self._node_sockets = listener.listen(*host_and_port(settings.node_listen), "node_listen")

    def answer(self, stack: contextlib.AsyncExitStack, app: Starlette, withdraw: Callable[[], None]) -> None:
        """Answer requests at all addresses but the public one of a lane, until the stack closes.

        `withdraw` answers waiting readers before a server stops.
        """
        self._withdraw = withdraw
        self.connections.trust = self._neighbours.trust = self.trust
        self.connections.sender = self._neighbours.sender = app.state.sender
        self.connections.turns = self._operators.turns = self._neighbours.turns = app.state.turns
        self._serve_at(stack, app, self._sockets, self.connections)
        self._serve_at(stack, app.state.operator, self._admin_sockets, self._operators)
        self._serve_at(stack, app, self._node_sockets, self._neighbours, self._tls)
        if self._orders is not None:
            private = [socket.socket(fileno=descriptor) for descriptor in self._orders.private]
            is_alone = isinstance(self.settings.log, Embedded)
            self._serve_at(stack, app.state.inner, private, self._neighbours, None if is_alone else self._tls)

    def join(self, stack: contextlib.AsyncExitStack, app: Starlette, lanes: Lanes) -> None:
        """Answer at the public address of a machine, beside its other lanes, until the stack closes."""
        self.connections.lanes = lanes
        stack.callback(lanes.stop)
        self._sockets = listener.listen(self.settings.host, self.port, shared=True)
        self._serve_at(stack, app, self._sockets, self.connections)

    def keepers(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return what watches the connections, by name."""
        return {
            "connections": self.connections.watch(),
            "neighbours": self._neighbours.watch(),
            "operators": self._operators.watch(),
        }

    @property
    def url(self) -> str:
        return local_url(self.settings.host, self.port)

    @property
    def port(self) -> int:
        return self._orders.port if self._orders is not None else int(self._sockets[0].getsockname()[1])

    @property
    def node_url(self) -> str:
        """The URL at which other nodes and lanes reach this process."""
        if self._orders is not None:
            return self._orders.urls[self.settings.lane.number]
        return self.settings.advertise or http_url(self.settings.host, self.port)

    def _serve_at(
        self,
        stack: contextlib.AsyncExitStack,
        app: Starlette,
        sockets: list[socket.socket],
        connections: Connections,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if sockets:
            server = _server(app, self.settings, connections, tls)
            if connections.lanes is not None:
                connections.lanes.take(partial(_connection, server, connections), app.state.hear)
            serving = asyncio.create_task(self._serve(server, sockets), name="http")
            stack.push_async_callback(self._stop, server, serving, connections.lanes)

    async def _serve(self, server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        """Answer requests until the server stops; however it ends, the process stops too."""
        failed = False
        try:
            await server.serve(sockets)
        except SystemExit:
            log.error("http.failed", address=sockets[0].getsockname())
            failed = True
        self._ended(failed)

    async def _stop(self, server: uvicorn.Server, serving: asyncio.Task[None], lanes: Lanes | None) -> None:
        if lanes is not None:
            lanes.leave(server)
        # Waiting readers get an answer first; otherwise the server would wait for them.
        self._withdraw()
        server.should_exit = True
        await serving


def _connection(server: uvicorn.Server, connections: Connections, first: bytes) -> ClientConnection:
    """Return the protocol of a connection whose first input another lane has read."""
    return ClientConnection(server.config, server.server_state, {}, door=connections, first=first)


def _server(
    app: object, settings: Settings, connections: Connections, tls: ssl.SSLContext | None = None
) -> uvicorn.Server:
    check_hooks()
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        loop="none",
        http=partial(ClientConnection if tls is None else TlsConnection, door=connections),  # type: ignore[arg-type]
        ssl_context_factory=None if tls is None else lambda config, default: tls,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # `ClientConnection` handles them, and the scheme is not used.
        proxy_headers=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    # The service handles signals itself, to stop the streams after the server.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    return server
