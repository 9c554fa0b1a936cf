"""Answers: a status, headers and a body, and the one shape that every error has."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
import orjson

Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
CLOSE: Final = (b"connection", b"close")


class Reply(msgspec.Struct, frozen=True):
    """What goes back to the client."""

    status: int
    headers: Headers
    body: bytes = b""


NO_CONTENT: Final = Reply(204, [])


def json_bytes(body: bytes, status: int = 200) -> Reply:
    """Return an answer whose body is JSON already."""
    return Reply(status, [JSON, (b"content-length", b"%d" % len(body))], body)


def json_reply(content: object, status: int = 200) -> Reply:
    """Return an answer with `content` as JSON."""
    return json_bytes(orjson.dumps(content), status)


def generic_error(status: int, message: str | None = None, headers: Headers | None = None) -> Reply:
    """Return a GenericError; without a message it carries the status's own phrase."""
    text = message or HTTPStatus(status).phrase
    reply = json_reply({"error": text, "status_code": status}, status)
    reply.headers.extend(headers or [])
    return reply
