"""Server-sent events (WHATWG HTML, 9.2): `event: `, `id: ` and one `data: ` line, in this order.

Public clients accept no other order. They also split the line at every `data: `, so its space is escaped inside JSON
strings.
"""

from typing import ClassVar, Final, Protocol

import msgspec

from app.http.replies import Headers

HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
#: A comment that breaks silence, for clients and proxies that give up on a quiet connection.
HEARTBEAT: Final = b": still here\n\n"
HEARTBEAT_SECONDS: Final = 10.0


class Named(Protocol):
    """The data of an event, of a struct that has its name."""

    event: ClassVar[str]


def event(name: str, identity: int | str | None, data: bytes) -> bytes:
    """Return an event with JSON data, and with an id unless it is None."""
    line = b"" if identity is None else f"id: {identity}\n".encode("ascii")
    return b"event: %s\n%sdata: %s\n\n" % (name.encode("ascii"), line, escaped(data))


def json_event(name: str, content: object, identity: int | None = None) -> bytes:
    """Return an event with `content`, an object of a documented type, as JSON."""
    return event(name, identity, msgspec.json.encode(content))


def named_event(content: Named, identity: int | None = None) -> bytes:
    return json_event(content.event, content, identity)


def escaped(text: bytes) -> bytes:
    """Return JSON without `data: `, which only strings can contain: no colon here is followed by a space."""
    return text.replace(b"data: ", b"data:\\u0020")
