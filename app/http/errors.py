"""Errors of requests themselves.

A command that the log refuses is not an error: its fold's verdict has the status (`topics.folding`).
"""

from typing import Any, Final

from app.http.replies import CLOSE
from topics.errors import BadRequest, RequestError, TooLarge


class ClientGone(Exception):
    """The client hung up, so no answer is sent."""


class TooLargeToRead(TooLarge):
    """The body is too long, or its length is unknown, so the connection is closed without reading the rest."""

    headers = (CLOSE,)


class RequestTimeout(RequestError):
    """The client stopped sending mid-request; the connection is closed, as the rest may never come."""

    status = 408
    headers = (CLOSE,)


class UnsupportedEncoding(RequestError):
    """The body has a Content-Encoding that the service does not decode."""

    status = 415


class Invalid(BadRequest):
    """A body has the wrong form; `details` say where, and do not repeat what the client sent."""

    status = 422
    #: The message shows this much of the first fault's place, because its names may be the client's.
    PLACE_CHARACTERS: Final = 100

    def __init__(self, details: list[dict[str, Any]]) -> None:
        first = details[0]
        super().__init__(f"{'.'.join(map(str, first['loc']))[: self.PLACE_CHARACTERS]}: {first['type']}")
        self.details = details
