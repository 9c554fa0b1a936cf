"""Answers: a status, headers and a body; and the one shape of all session errors."""

from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from topics.errors import EarshotError, TooLarge

Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
#: Longest reason in a header, in characters.
_REASON_CHARACTERS: Final = 500
CLOSE: Final = (b"connection", b"close")
#: For an error after which the same request is not to be sent again, unless an Idempotency-Key makes that safe.
FINAL: Final = (b"x-should-retry", b"false")
#: For an answer that contains a key.
NO_STORE: Final = (b"cache-control", b"no-store")
#: Reason phrases that Python 3.13 changed.
_PHRASES: Final = {
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}


class Reply(msgspec.Struct, frozen=True):
    """An answer to the client."""

    status: int
    headers: Headers
    body: bytes = b""


class StreamReply(msgspec.Struct, frozen=True):
    """An answer that is sent piece by piece, as it is made or arrives; it is cut off if making it fails."""

    status: int
    headers: Headers
    pieces: AsyncGenerator[bytes, None]


Time = Annotated[
    str, msgspec.Meta(description="ISO 8601 in UTC, to the millisecond.", extra_json_schema={"format": "date-time"})
]
#: Renders a status as an error in the shape of one part of the interface; names the fault if the client may know it.
ErrorRenderer = Callable[[int, EarshotError | None], Reply]

NO_CONTENT: Final = Reply(204, [])

_encode: Final = msgspec.json.Encoder().encode


class GenericError(msgspec.Struct, frozen=True):
    """An error of the session interface, and of requests that reach no operation."""

    error: Annotated[str, msgspec.Meta(min_length=1, description="For people: its wording may change.")]
    status_code: Annotated[int, msgspec.Meta(ge=400, le=599, description="The HTTP status.")]


def reason_header(text: str) -> tuple[bytes, bytes]:
    """Return a header with a reason that the body may not contain: one line of printable Latin-1."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:_REASON_CHARACTERS])
    return b"earshot-reason", line.strip().encode("latin-1", "replace")


def reply_of_bytes(status: int, content_type: tuple[bytes, bytes], body: bytes) -> Reply:
    return Reply(status, [content_type, (b"content-length", b"%d" % len(body))], body)


def json_reply_of_bytes(body: bytes, status: int = 200) -> Reply:
    return reply_of_bytes(status, JSON, body)


def json_reply(content: object, status: int = 200) -> Reply:
    """Return an answer with `content`, an object of a documented type, as JSON."""
    return json_reply_of_bytes(_encode(content), status)


def once_reply(content: object, status: int = 200) -> Reply:
    """Return an answer that no cache may keep, for content that is shown once, such as a key."""
    reply = json_reply(content, status)
    reply.headers.append(NO_STORE)
    return reply


def reply_unless_known(
    known: bytes, etag: bytes, content_type: tuple[bytes, bytes], body: bytes, headers: Headers
) -> Reply:
    """Return an answer with an ETag, or 304 if the client's If-None-Match (`known`) contains it."""
    tagged = [(b"etag", etag), *headers]
    if etag in known:
        return Reply(304, tagged)
    reply = reply_of_bytes(200, content_type, body)
    reply.headers.extend(tagged)
    return reply


def phrase(status: int) -> str:
    """Return the reason phrase of a status."""
    return _PHRASES.get(status) or HTTPStatus(status).phrase


def generic_error(status: int, message: str | None = None) -> Reply:
    """Return a GenericError; without a message it carries the status's own phrase."""
    return json_reply(GenericError(message or phrase(status), status), status)


def session_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error of the audio sessions or of the service itself, a GenericError."""
    reply = generic_error(status, None if fault is None else str(fault))
    if isinstance(fault, TooLarge):
        # Some clients show headers but not bodies.
        reply.headers.append(reason_header(str(fault)))
    return reply
