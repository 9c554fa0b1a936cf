"""Answers: a status, headers and a body, and the one shape that every error of the sessions has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import Final

import msgspec
import orjson

from topics.errors import EarshotError

Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
CLOSE: Final = (b"connection", b"close")


class Reply(msgspec.Struct, frozen=True):
    """What goes back to the client."""

    status: int
    headers: Headers
    body: bytes = b""


class StreamReply(msgspec.Struct, frozen=True):
    """What goes back piece by piece, as it is made or arrives; it is cut off where making it fails."""

    status: int
    headers: Headers
    pieces: AsyncGenerator[bytes, None]


#: Returns an error with a status in the shape of one part of the interface; names the fault if the client may know it.
Shape = Callable[[int, EarshotError | None], Reply]

NO_CONTENT: Final = Reply(204, [])


def reply_of_bytes(status: int, content_type: tuple[bytes, bytes], body: bytes) -> Reply:
    """Return an answer whose body is known."""
    return Reply(status, [content_type, (b"content-length", b"%d" % len(body))], body)


def json_reply_of_bytes(body: bytes, status: int = 200) -> Reply:
    """Return an answer whose body is JSON already."""
    return reply_of_bytes(status, JSON, body)


def json_reply(content: object, status: int = 200) -> Reply:
    """Return an answer with `content` as JSON."""
    return json_reply_of_bytes(orjson.dumps(content), status)


def generic_error(status: int, message: str | None = None) -> Reply:
    """Return a GenericError; without a message it carries the status's own phrase."""
    return json_reply({"error": message or HTTPStatus(status).phrase, "status_code": status}, status)


def session_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error of the audio sessions or of the service itself, a GenericError."""
    return generic_error(status, None if fault is None else str(fault))
