"""A live socket that costs little CPU: frames are built in advance, and windows are counted, not parsed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from benchmarks.client import LoadClient, LoadError
from benchmarks.plans import Target
from benchmarks.wire import request

_UPGRADE: Final = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
_END: Final = b"\r\n\r\n"
_TEXT: Final = 0x81
_PING: Final = 0x89
#: A pong without data, matching the service's pings.
PONG: Final = b"\x8a\x80\0\0\0\0"


def opening(target: Target, path: str) -> bytes:
    return request("GET", path, headers=f"X-Api-Key: {target.key}\r\n{_UPGRADE}")


def message(data: bytes) -> bytes:
    """Return a binary message of 126 to 65,535 bytes. A mask of zeros leaves the data unchanged."""
    return b"\x82\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data


class SocketClient(asyncio.Protocol):
    """A socket that sends the audio of a client's session."""

    def __init__(self, client: LoadClient) -> None:
        self.session = client.session
        self._opening = opening(client.target, f"/audio_sessions/{client.session}/socket")
        self._buffer = b""
        self._open = False
        self._windows = 0
        self._arrived = asyncio.Event()
        self._fault: LoadError | None = None

    @classmethod
    def join(cls, client: LoadClient) -> SocketClient:
        """Turn the client's own connection into the socket, so that only a session of another lane moves it."""
        socket = cls(client)
        client.connection.become(socket)
        return socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._opening)

    def uploads(self, sound: list[bytes], chunks: int) -> Sequence[tuple[bytes, ...]]:
        """Return the messages of the first `chunks` chunks, with the audio repeated in turn."""
        frames = [(message(data),) for data in sound]
        return [frames[number % len(frames)] for number in range(chunks)]

    async def ask(self, *parts: bytes) -> None:
        """Send a message without waiting for its acknowledgement."""
        self._transport.writelines(parts)

    async def follow(self, token: str = "") -> tuple[int, str]:
        """Wait for windows; return the number since the last call, and no token.

        Raises:
            LoadError: The socket ended.
        """
        await self._arrived.wait()
        if self._fault is not None:
            raise self._fault
        self._arrived.clear()
        count, self._windows = self._windows, 0
        return count, token

    async def windows(self, _first: int) -> int:
        """Wait for windows; return the number since the last call."""
        return (await self.follow())[0]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open:
            if _END not in self._buffer:
                return
            head, _, self._buffer = self._buffer.partition(_END)
            self._open = b" 101 " in head[:16]
            if not self._open:
                self._fail(head)
                return
        self._read_frames()
        if self._windows:
            self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(b"closed")

    def _read_frames(self) -> None:
        at, buffer = 0, self._buffer
        while len(buffer) >= at + 4 or buffer[at : at + 2] == bytes((_PING, 0)):
            kind, size, head = buffer[at], buffer[at + 1], at + 2
            if size == 126:
                size, head = int.from_bytes(buffer[at + 2 : at + 4], "big"), at + 4
            if len(buffer) < head + size:
                break
            if kind == _PING:
                self._transport.write(PONG)
            elif kind == _TEXT:
                self._windows += buffer.startswith(b'{"type":"window"', head)
            else:
                self._fail(buffer[at : at + 200])
            at = head + size
        self._buffer = buffer[at:]

    def _fail(self, what: bytes) -> None:
        self._fault = self._fault or LoadError(f"the socket ended: {what[:200]!r}")
        self._arrived.set()
