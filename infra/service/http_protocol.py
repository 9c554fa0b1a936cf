"""uvicorn's HTTP protocol, which writes the head of an answer together with its body."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class WholeAnswers(HttpToolsProtocol):
    """Serves one connection; an answer that is ready takes one system call and one packet, not two."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve."""
        super().connection_made(transport)
        self.transport = PairingTransport(transport, self.loop)


class PairingTransport(asyncio.Transport):
    """Passes two writes in a row on as one; the first waits for the second until the loop has nothing else to do."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._first: bytes | bytearray | memoryview = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, now or soon, in the order of the calls."""
        if self._first:
            first, self._first = self._first, b""
            self._transport.writelines((first, data))
        else:
            self._first = data
            self._loop.call_soon(self._write_first)

    def _write_first(self) -> None:
        if self._first:
            first, self._first = self._first, b""
            self._transport.write(first)

    def close(self) -> None:
        """Close once all is written."""
        self._write_first()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""
        return self._transport.is_closing()
