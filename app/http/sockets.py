"""WebSocket connections (RFC 6455) as the edge sees them.

The server puts an `Upgrade` into the scope of a request for one (`extensions`). An operation accepts it, or answers
like any other operation.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Final, Protocol

from starlette.types import Scope

from app.http.replies import Reply
from topics.errors import BadRequest
from topics.turns import Holder

#: Key of the upgrade in a scope's extensions.
EXTENSION: Final = "earshot.upgrade"
#: Returned by an operation that has accepted an upgrade; nothing is left to answer.
SWITCHED: Final = Reply(101, [])

OK: Final = 1000
GOING_AWAY: Final = 1001
TOO_BIG: Final = 1009
FAULT: Final = 1011
TRY_LATER: Final = 1013
#: Close codes of statuses that do not follow `OWN`.
_CODES: Final = {413: TOO_BIG, 500: FAULT, 503: TRY_LATER, 409: 4410}
OWN: Final = 4000
#: No frame and no pong, or a client that stopped reading.
IDLE: Final = 4408
#: Another socket now sends for the session.
REPLACED: Final = 4409
#: The header in which a client lists its protocols.
PROTOCOLS: Final = b"sec-websocket-protocol"
#: Longest reason in a close frame, in bytes.
REASON_BYTES: Final = 123


class NotWebSocket(BadRequest):
    """The request does not follow RFC 6455; the answer names the version that does."""

    headers = ((b"sec-websocket-version", b"13"),)


def close_code(status: int) -> int:
    return _CODES.get(status, OWN + status)


def offered(scope: Scope) -> list[str]:
    """Return the protocols that a client offers, in its order."""
    lines = (value.decode("latin-1") for name, value in scope["headers"] if name == PROTOCOLS)
    return [name.strip() for line in lines for name in line.split(",") if name.strip()]


def key_in_protocols(scope: Scope, prefix: str) -> str:
    """Return the key that an offered protocol carries as base64url after a prefix, or ""."""
    for name in offered(scope):
        if name.startswith(prefix):
            text = name.removeprefix(prefix)
            try:
                return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
            except (binascii.Error, ValueError):
                return text  # No key has this form, so it is refused as a wrong one.
    return ""


def reason_bytes(text: str) -> str:
    """Truncate a text to the length of a close frame's reason."""
    return text.encode()[:REASON_BYTES].decode(errors="ignore")


class Receiver(Protocol):
    """Receives the messages of a socket. Its methods must not raise or block."""

    #: Whose messages these are.
    holder: Holder

    def received(self, data: bytes) -> None:
        """Handle a binary message."""

    def received_text(self, data: bytes) -> None:
        """Handle a text message, which may be invalid UTF-8."""

    def holds(self, size: int) -> None:
        """Note that `size` bytes of an incomplete message are buffered now."""

    def writable(self) -> None:
        """The client reads again."""

    def closing_error(self, code: int, text: str) -> bytes:
        """Return the `error` message to send before closing for a protocol fault or a timeout."""

    def leave(self) -> None:
        """The server is stopping: close soon."""

    def ended(self) -> None:
        """The connection is closed or closing: no more messages come."""


class Wire(Protocol):
    """An upgraded connection. Messages arrive only after `resume_reading`. Loop only."""

    @property
    def blocked(self) -> bool:
        """True while the client does not read: send nothing that can wait."""

    def send(self, texts: list[bytes]) -> None:
        """Send text messages in one write; they are dropped if the connection is closing."""

    def close(self, code: int, reason: str, texts: list[bytes]) -> None:
        """Send the last messages and close; idempotent."""

    def pause_reading(self) -> None:
        """Stop reading, except messages already received; idempotent."""

    def resume_reading(self) -> None:
        """Resume reading; idempotent."""


class Passage(Protocol):
    """A socket that another node serves and this node relays."""

    #: Called when the socket has ended.
    on_end: Callable[[], None]

    def refuse(self, code: int, reason: str, text: bytes) -> None:
        """Send the client a last message, unless another message is incomplete, and close."""


class Upgrade(Protocol):
    """A request for WebSocket that is not answered yet."""

    @property
    def idle_seconds(self) -> float:
        """A client that sends nothing for this long, not even a pong, is disconnected."""

    def check(self) -> None:
        """Check the handshake, before the request has an effect.

        Raises:
            NotWebSocket: the request does not follow RFC 6455.
        """

    def accept(self, protocol: str | None, receiver: Receiver, longest: int) -> Wire:
        """Answer 101 with one of the offered protocols or none; messages have at most `longest` bytes.

        Raises:
            NotWebSocket: the request does not follow RFC 6455.
            ClientGone: the client has hung up.
        """

    async def pass_on(self, url: str, headers: list[tuple[bytes, bytes]]) -> Reply | Passage | None:
        """Connect to another node and relay all bytes in both directions; return its answer if it refuses.

        Return None if the other node has the connection itself now.

        Raises:
            Unavailable: it does not answer.
        """


def upgrade_of(scope: Scope) -> Upgrade | None:
    """Return the upgrade that a request asks for, or None."""
    upgrade: Upgrade | None = scope.get("extensions", {}).get(EXTENSION)
    return upgrade
