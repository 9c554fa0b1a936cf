"""Errors over HTTP: the status of each named error, and the errors of requests themselves.

A command that the log refuses is not an error: its fold's verdict has the status (`topics.folding`).
"""

from collections.abc import Mapping
from typing import Any, Final

from app.http.ranges import RangeNotSatisfiable
from topics.errors import (
    BadRequest,
    Closed,
    Conflict,
    DirectoryDown,
    EarshotError,
    EngineAway,
    Exhausted,
    NotFound,
    RequestError,
    RuleBroken,
    TooLarge,
    Unauthorized,
    Unavailable,
)


class ClientGone(Exception):
    """The client hung up, so no answer is sent."""


class TooLargeToRead(TooLarge):
    """The body is too long, or its length is unknown, so the connection is closed without reading the rest."""


class RequestTimeout(RequestError):
    """The client stopped sending mid-request; the connection is closed, as the rest may never come."""


class UnsupportedEncoding(RequestError):
    """The body has a Content-Encoding that the service does not decode."""


class Invalid(BadRequest):
    """A body has the wrong form; `details` say where, and do not repeat what the client sent."""

    #: The message shows this much of the first fault's place, because its names may be the client's.
    PLACE_CHARACTERS: Final = 100

    def __init__(self, details: list[dict[str, Any]]) -> None:
        first = details[0]
        super().__init__(f"{'.'.join(map(str, first['loc']))[: self.PLACE_CHARACTERS]}: {first['type']}")
        self.details = details


#: An error has the status of its class, or of the nearest base class in this table.
STATUS: Final[Mapping[type[EarshotError], int]] = {
    #: The contract answers a broken rule of the speaker interface with the status of a success.
    RuleBroken: 200,
    RequestError: 400,
    Unauthorized: 401,
    Exhausted: 402,
    Closed: 403,
    NotFound: 404,
    RequestTimeout: 408,
    Conflict: 409,
    TooLarge: 413,
    UnsupportedEncoding: 415,
    RangeNotSatisfiable: 416,
    Invalid: 422,
    EarshotError: 500,
    EngineAway: 502,
    DirectoryDown: 503,
    Unavailable: 503,
}


def status_of(error: EarshotError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
