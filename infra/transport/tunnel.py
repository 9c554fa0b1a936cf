"""Tunnels a socket of another node's session: relays bytes between the client and the owner without parsing them.

Each end stops reading while the other cannot write, so a tunnel buffers no more than two transports do.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from starlette.types import Scope
from uvicorn.server import ServerState
from websockets.frames import Close, Frame, Opcode

from app.cluster.forwarding import CONNECT_SECONDS, GRACE_SECONDS
from app.http.errors import ClientGone
from app.http.replies import Reply
from app.http.sockets import PROTOCOLS
from infra.transport.connections import Connections
from infra.transport.unread import Unread, cut
from topics.errors import OwnerAway

#: Headers that the owner gets. The page's origin is not among them, because this node checked it.
PASSED_ON: Final = frozenset(
    {
        b"authorization",
        b"connection",
        b"sec-websocket-key",
        b"sec-websocket-version",
        PROTOCOLS,
        b"upgrade",
        b"x-api-key",
        b"x-request-id",
    }
)
LONGEST_HEAD: Final = 16 * 1024
LONGEST_ERROR: Final = 64 * 1024
AWAY: Final = "the node that owns it does not answer"
#: An unmasked close frame with code 1001.
GOING_AWAY: Final = b"\x88\x02\x03\xe9"


class Upgradable(Protocol):
    """A connection on which a request asks for another protocol."""

    address: str
    #: Input after the request.
    early: bytes

    door: Connections
    server_state: ServerState

    def hand_over(self) -> asyncio.Transport | None: ...

    def give(self, lane: int, data: bytes) -> bool: ...


class FrameCount:
    """Finds the ends of frames in a server's output, which is unmasked."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._closed = False

    @property
    def between(self) -> bool:
        return not self._head and not self._left

    @property
    def takes_close(self) -> bool:
        """True if a close frame may follow: between frames, before any close frame."""
        return self.between and not self._closed

    def feed(self, data: bytes) -> None:
        while data:
            taken = min(self._left, len(data))
            self._left -= taken
            data = data[taken:]
            if not data:
                return
            self._head, data = self._head + data[:1], data[1:]
            size = self._head[1] if len(self._head) > 1 else 0
            width = {126: 2, 127: 8}.get(size, 0)
            if len(self._head) == 2 + width:
                self._left = int.from_bytes(self._head[2:], "big") if width else size
                self._closed = self._closed or self._head[0] & 15 == Opcode.CLOSE
                self._head = b""


class End(asyncio.Protocol):
    """One end of a tunnel; its input goes out at the other end."""

    def __init__(self, door: Connections | None = None, address: str = "") -> None:
        self.address = address
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._other: End | None = None
        self._first = b""
        self._frames: FrameCount | None = None
        self._connections: set[object] = set()
        self._stuck = 0.0 if door is None else door.now
        self._unread = Unread()
        self._stopping = False
        self.on_end: Callable[[], None] = lambda: None
        self.head: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is of another class.

    def join(self, other: End, first: bytes) -> None:
        """Relay input to `other` from now on, starting with `first`."""
        self._other = other
        self.data_received(first)

    def guard(self, connections: set[object]) -> None:
        """Register as one of the server's connections."""
        self._connections, self._frames = connections, FrameCount()
        connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Relay input; before the tunnel stands, collect the head of an answer."""
        if self._other is not None:
            self._other.write(data)
            return
        self._first += data
        if not self.head.done() and (b"\r\n\r\n" in self._first or len(self._first) > LONGEST_HEAD):
            self.head.set_result(self._first)

    def write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._stopping:
            return
        self._unread.written += len(data)
        self._transport.write(data)
        if self._frames is not None:
            self._frames.feed(data)

    def take_first(self) -> bytes:
        """Return the input from before the tunnel stood."""
        first, self._first = self._first, b""
        return first

    def pause_writing(self) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        other = None if self._other is None else self._other._transport
        if other is not None and not other.is_closing():
            other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._door is not None:
            self._door.leave(self)
        self._connections.discard(self)
        if not self.head.done():
            self.head.set_result(b"")
        self.on_end()
        if self._other is not None:
            self._other.close()

    def refuse(self, code: int, reason: str, text: bytes) -> None:
        """Send the client a last message and close; skip the message inside of another one."""
        if self._frames is not None and self._frames.takes_close:
            self.write(Frame(Opcode.TEXT, text).serialize(mask=False))
            self.write(Frame(Opcode.CLOSE, Close(code, reason).serialize()).serialize(mask=False))
        self.shutdown()

    def close(self) -> None:
        """Close once everything is written, with code 1001 if a close frame can follow."""
        if self._frames is not None and self._frames.takes_close:
            self.write(GOING_AWAY)
        self._stopping = True
        if self._transport is not None:
            self._transport.close()

    def shutdown(self) -> None:
        if self._other is not None:
            self._other.close()
        self.close()

    def check(self, now: float) -> None:
        """End a client that reads nothing; the owner ends everything else that is late."""
        if self._transport is None or self._door is None:
            return
        if self._unread.is_read(self._transport.get_write_buffer_size()):
            self._stuck = now
        if now - self._stuck > 2 * self._door.limits.idle_seconds:
            cut(self._transport)


async def open_tunnel(
    connection: Upgradable, scope: Scope, url: str, headers: list[tuple[bytes, bytes]]
) -> Reply | End:
    """Ask the owner, and join both connections; return the client's end, or the owner's answer if it refuses.

    Raises:
        OwnerAway: the owner does not answer.
        ClientGone: the client has hung up.
    """
    loop = asyncio.get_running_loop()
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    context = (connection.door.trust or ssl.create_default_context()) if secure else None
    owner: End | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, owner = await loop.create_connection(
                End, parts.hostname or "", parts.port or (443 if secure else 80), ssl=context
            )
        owner.write(_request(scope, parts.netloc, parts.path.rstrip("/"), headers))
        async with asyncio.timeout(GRACE_SECONDS):
            first = await owner.head
        status, body_at = _status(first)
        if status != 101:
            return await _refusal(owner, status, body_at)
    except (OSError, TimeoutError, ValueError) as error:
        if owner is not None:
            owner.close()
        raise OwnerAway(AWAY) from error
    except BaseException:  # Cancelled: the client has hung up, or the node stops.
        if owner is not None:
            owner.close()
        raise
    transport = connection.hand_over()
    if transport is None:
        owner.close()
        raise ClientGone
    client = End(connection.door, connection.address)
    client.connection_made(transport)
    connection.door.admit(client)
    client.write(first[:body_at])
    client.guard(connection.server_state.connections)  # type: ignore[arg-type]
    transport.set_protocol(client)
    client.join(owner, connection.early)
    owner.take_first()
    owner.join(client, first[body_at:])
    transport.resume_reading()
    return client


def _request(scope: Scope, host: str, prefix: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    query = scope["query_string"]
    target = prefix.encode() + scope["raw_path"] + (b"?" + query if query else b"")
    sent = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
    lines = [b"GET %s HTTP/1.1" % target, b"host: " + host.encode("ascii")]
    lines += [b"%s: %s" % pair for pair in (*sent, *headers)]
    return b"\r\n".join((*lines, b"", b""))


def _status(first: bytes) -> tuple[int, int]:
    """Return the status of an answer and the end of its head; raise ValueError if it has none."""
    if not first.startswith(b"HTTP/1.1 ") or b"\r\n\r\n" not in first:
        raise ValueError("not HTTP")
    return int(first[9:12]), first.index(b"\r\n\r\n") + 4


async def _refusal(owner: End, status: int, body_at: int) -> Reply:
    """Return the answer of an owner that refuses; such answers are short and state their length.

    Raises:
        ValueError: it is longer.
        TimeoutError: the owner does not send all of it.
    """
    first = owner.take_first()
    lines = first[: body_at - 4].split(b"\r\n")[1:]
    pairs = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    length = int(dict(pairs).get(b"content-length", b"0"))
    if length > LONGEST_ERROR:
        raise ValueError("not a short answer")
    body = first[body_at:]
    async with asyncio.timeout(GRACE_SECONDS):
        while len(body) < length:
            await asyncio.sleep(0.01)
            body += owner.take_first()
    owner.close()
    kept = (b"content-type", b"content-length", b"retry-after", b"sec-websocket-version", b"x-request-id")
    return Reply(status, [pair for pair in pairs if pair[0] in kept], body)
