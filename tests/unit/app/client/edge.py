"""An edge behind the service's own connections in a thread, and before it a proxy that cuts what passes through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tests.unit.app.conftest import House
from tests.unit.app.sessions.sockets import place


class Cutter:
    """A TCP proxy to a port of this machine. It may be told what to do from any thread."""

    def __init__(self) -> None:
        self.port = 0
        #: While True nobody gets through.
        self.away = False
        #: Says after how many bytes a new connection is cut, None for never.
        self.length: Callable[[], int | None] = lambda: None
        self.connections = 0
        self.open: set[asyncio.Transport] = set()
        self.target = 0
        self._loop: asyncio.AbstractEventLoop

    async def serve(self, target: int) -> asyncio.Server:
        """Begin to pass on what comes."""
        self.target, self._loop = target, asyncio.get_running_loop()
        server = await self._loop.create_server(lambda: Front(self), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, function: Callable[[], object]) -> None:
        """Call something where the edge runs."""
        self._loop.call_soon_threadsafe(function)

    def cut(self) -> None:
        """Cut all connections that are open."""
        self.call(lambda: [transport.abort() for transport in list(self.open)])


class End(asyncio.Protocol):
    """One end of a connection that passes through."""

    def __init__(self, cutter: Cutter) -> None:
        self.cutter = cutter
        self.transport: asyncio.Transport
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.cutter.open.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.cutter.open.discard(self.transport)
        if self.other is not None:
            # What was read before is still passed on where the end was an orderly one.
            self.other.transport.abort() if error else self.other.transport.close()


class Front(End):
    """The end towards the client. It counts what passes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.cutter.away:
            self.transport.abort()
            return
        self.cutter.connections += 1
        self.left = self.cutter.length()
        self.transport.pause_reading()
        self.connecting = asyncio.create_task(self.connect())

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, self.other = await loop.create_connection(lambda: Back(self), "127.0.0.1", self.cutter.target)
        except OSError:
            self.transport.abort()
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.pass_on(data, self.other.transport)

    def pass_on(self, data: bytes, sink: asyncio.Transport) -> None:
        if self.left is not None:
            data, self.left = data[: self.left], self.left - len(data)
        sink.write(data)
        if self.left is not None and self.left <= 0 and self.other is not None:
            self.transport.abort()
            self.other.transport.abort()


class Back(End):
    """The end towards the service."""

    def __init__(self, front: Front) -> None:
        super().__init__(front.cutter)
        self.other: Front = front

    def data_received(self, data: bytes) -> None:
        self.other.pass_on(data, self.other.transport)


@contextmanager
def edge(house: House) -> Iterator[Cutter]:
    """Serve an edge in a thread; yields the way to it."""
    cutter, ready, over = Cutter(), Event(), Event()

    async def serve() -> None:
        async with place(house) as here:
            server = await cutter.serve(here.port)
            ready.set()
            await asyncio.to_thread(over.wait)
            server.close()
            cutter.cut()
            await asyncio.sleep(0.01)

    thread = Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield cutter
    finally:
        over.set()
        thread.join()
