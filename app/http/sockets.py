"""A connection that speaks WebSocket (RFC 6455) once a request has asked for it: what the edge sees of it.

The server puts an `Upgrade` into the scope of such a request (`extensions`). An operation accepts it, or answers as any
other operation does.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Final, Protocol

from starlette.types import Scope

from app.http.replies import Reply

#: The name of the upgrade among the extensions of a scope.
EXTENSION: Final = "earshot.upgrade"
#: Returned by an operation that has accepted an upgrade: there is nothing left to answer.
SWITCHED: Final = Reply(101, [])

OK: Final = 1000
GOING_AWAY: Final = 1001
TOO_BIG: Final = 1009
FAULT: Final = 1011
TRY_LATER: Final = 1013
#: Close codes of statuses that do not follow `OWN`.
_CODES: Final = {413: TOO_BIG, 500: FAULT, 503: TRY_LATER, 409: 4410}
OWN: Final = 4000
#: No frame and no pong, or a reader that takes nothing.
IDLE: Final = 4408
#: Another socket sends for the session now.
REPLACED: Final = 4409
#: The header in which a client lists the protocols that it knows.
PROTOCOLS: Final = b"sec-websocket-protocol"
#: Bytes of reason that fit in a close frame.
REASON_BYTES: Final = 123


def close_code(status: int) -> int:
    """Return the close code for an HTTP status."""
    return _CODES.get(status, OWN + status)


def offered(scope: Scope) -> list[str]:
    """Return the protocols that a client offers, in its order."""
    lines = (value.decode("latin-1") for name, value in scope["headers"] if name == PROTOCOLS)
    return [name.strip() for line in lines for name in line.split(",") if name.strip()]


def key_in_protocols(scope: Scope, prefix: str) -> str:
    """Return the key that one of the offered protocols has as base64url after a prefix, or ""."""
    for name in offered(scope):
        if name.startswith(prefix):
            text = name.removeprefix(prefix)
            try:
                return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
            except (binascii.Error, ValueError):
                return text  # No key has this form, so it is refused as a wrong one.
    return ""


def reason_bytes(text: str) -> str:
    """Return as much of a text as a close frame can hold."""
    return text.encode()[:REASON_BYTES].decode(errors="ignore")


class Receiver(Protocol):
    """Receives the messages of a socket. None of its methods may raise or wait."""

    def received(self, data: bytes) -> None:
        """Take a binary message."""
        ...

    def received_text(self, data: bytes) -> None:
        """Take a text message, which may be invalid UTF-8."""
        ...

    def holds(self, size: int) -> None:
        """Note that `size` bytes of a message that is not complete are held now."""
        ...

    def writable(self) -> None:
        """The client reads again."""
        ...

    def broken(self, code: int, text: str) -> bytes:
        """Return what to tell the client before a close that has a reason of its own on the wire."""
        ...

    def leave(self) -> None:
        """The server stops: close soon."""
        ...

    def ended(self) -> None:
        """The connection is closed or closing: no more messages come."""
        ...


class Wire(Protocol):
    """An upgraded connection. Messages come once `resume_reading` was called. Loop only."""

    @property
    def blocked(self) -> bool:
        """True while the client does not read: send nothing now that can wait."""
        ...

    def send(self, texts: list[bytes]) -> None:
        """Send text messages in one write; they are dropped if the connection is closing."""
        ...

    def close(self, code: int, reason: str, texts: list[bytes]) -> None:
        """Send the last messages and close; allowed twice."""
        ...

    def pause_reading(self) -> None:
        """Stop reading further messages, except those received already; allowed twice."""
        ...

    def resume_reading(self) -> None:
        """Read on; allowed twice."""
        ...


class Passage(Protocol):
    """A socket that another node serves, and this one passes on."""

    #: Called when it has ended.
    on_end: Callable[[], None]

    def refuse(self, code: int, reason: str, text: bytes) -> None:
        """Send the client a last message and close, where that is no part of another message."""
        ...


class Upgrade(Protocol):
    """A request that asks for WebSocket, and is not answered yet."""

    @property
    def idle_seconds(self) -> float:
        """A client that sends nothing for this long, not even a pong, is disconnected."""
        ...

    def accept(self, protocol: str | None, receiver: Receiver, longest: int) -> Wire:
        """Answer 101 with one of the offered protocols, or none; a message has at most `longest` bytes.

        Raises:
            BadRequest: the request does not follow RFC 6455.
            ClientGone: the client has hung up.
        """
        ...

    async def pass_on(self, url: str, headers: list[tuple[bytes, bytes]]) -> Reply | Passage:
        """Ask another node, and from then on pass all bytes in both directions; return its answer if it refuses.

        Raises:
            Unavailable: it does not answer.
        """
        ...


def upgrade_of(scope: Scope) -> Upgrade | None:
    """Return the upgrade that a request asks for."""
    upgrade: Upgrade | None = scope.get("extensions", {}).get(EXTENSION)
    return upgrade
