"""Server-sent events (WHATWG HTML, 9.2): `event: `, `id: ` and one `data: ` line, in this order.

Public clients read no other order. They also cut the line at every `data: `, so inside JSON strings its space is
escaped.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from app.http.replies import Headers

HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
#: Silence is broken by a comment, for clients and proxies that give up on a quiet connection.
HEARTBEAT: Final = b": still here\n\n"
HEARTBEAT_SECONDS: Final = 10.0


def event(name: str, identity: int | str | None, data: bytes) -> bytes:
    """Return an event with JSON as its data, and with an id unless that is None."""
    line = b"" if identity is None else f"id: {identity}\n".encode("ascii")
    (escaped,) = escaped_pieces([data])
    return b"event: %s\n%sdata: %s\n\n" % (name.encode("ascii"), line, escaped)


def escaped_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield JSON without `data: `, which only strings can hold: nothing here puts a space after a colon."""
    return (piece.replace(b"data: ", b"data:\\u0020") for piece in pieces)
