"""The parts of HTTP/1.1 that a load generator needs: one request at a time on a persistent connection."""

from __future__ import annotations

import asyncio
import re
from typing import Final, cast

_LENGTH: Final = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    @classmethod
    async def open(cls, port: int, address: str | None = None) -> HttpConnection:
        """Connect, if it is given from this address of the machine."""
        loop = asyncio.get_running_loop()
        local = None if address is None else (address, 0)
        _, connection = await loop.create_connection(cls, "127.0.0.1", port, local_addr=local)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, *parts: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; the future resolves to status and body."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(parts)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(_END)
        if end < 0 or self._answer is None:
            return
        length = _LENGTH.search(self._buffer, 0, end)
        stop = end + len(_END) + (int(length[1]) if length else 0)
        if len(self._buffer) < stop:
            return
        body, status = self._buffer[end + len(_END) : stop], int(self._buffer[9:12])
        self._buffer = self._buffer[stop:]
        self._answer.set_result((status, body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the server closed the connection"))

    def become(self, other: asyncio.Protocol) -> None:
        """Give the idle connection to another protocol."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self._transport.set_protocol(other)
        other.connection_made(self._transport)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def request(method: str, path: str, length: int | None = None, headers: str = "") -> bytes:
    """Return the head of a request for a body of this length."""
    body = "" if length is None else f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{body}\r\n".encode("ascii")
