"""A proxy that cuts connections."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from threading import Event, Thread
from typing import Protocol


class Target(Protocol):
    port: int


class Cutter:
    """A TCP proxy to a local port, controlled from any thread."""

    def __init__(self) -> None:
        self.url = ""
        #: While True all connections are refused.
        self.away = False
        #: Returns the number of bytes after which a new connection is cut; None for never.
        self.length: Callable[[], int | None] = lambda: None
        #: Refuse sockets, like proxies without WebSocket support.
        self.refuses_sockets = False
        self.connections = 0
        self._open: set[StreamWriter] = set()
        #: Connections that are not closed at both ends.
        self._passing = 0
        self._loop: asyncio.AbstractEventLoop

    async def serve(self, target: int) -> asyncio.Server:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(lambda *front: self._pass(target, *front), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    def call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def cut(self) -> None:
        self.call(lambda: _abort(self._open))

    async def close(self) -> None:
        """Cut all connections, also those that are being made, and wait until they are closed."""
        while self._passing:
            _abort(self._open)
            await asyncio.sleep(0.001)

    async def _pass(self, target: int, reader: StreamReader, writer: StreamWriter) -> None:
        self._passing += 1
        try:
            await self._pass_on(target, reader, writer)
        finally:
            self._passing -= 1

    async def _pass_on(self, target: int, reader: StreamReader, writer: StreamWriter) -> None:
        if self.away:
            writer.transport.abort()
            return
        self.connections += 1
        left = self.length()
        self._open.add(writer)
        try:
            from_service, to_service = await asyncio.open_connection("127.0.0.1", target)
        except OSError:  # The target is away.
            writer.transport.abort()
            return
        finally:
            self._open.discard(writer)
        if writer.is_closing():  # It was cut meanwhile.
            to_service.transport.abort()
            return
        ends = {writer, to_service}
        self._open |= ends

        async def pump(source: StreamReader, sink: StreamWriter) -> None:
            nonlocal left
            with suppress(OSError):
                while data := await source.read(65536):
                    if self.refuses_sockets and b"Upgrade: websocket" in data:
                        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        break
                    if left is not None:
                        data, left = data[:left], left - len(data)
                    sink.write(data)
                    await sink.drain()
                    if left is not None and left <= 0:
                        _abort(ends)
            sink.close()

        await asyncio.gather(pump(reader, to_service), pump(from_service, writer))
        for end in ends:
            with suppress(OSError):
                await end.wait_closed()
        self._open -= ends


def _abort(ends: set[StreamWriter]) -> None:
    for end in ends:
        end.transport.abort()


@contextmanager
def proxied(target: AbstractAsyncContextManager[Target]) -> Iterator[Cutter]:
    """Run a proxy in a thread, on one loop with its target."""
    cutter, ready, over = Cutter(), Event(), Event()

    async def serve() -> None:
        async with target as here:
            server = await cutter.serve(here.port)
            ready.set()
            await asyncio.to_thread(over.wait)
            server.close()
            await cutter.close()

    thread = Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield cutter
    finally:
        over.set()
        thread.join()
