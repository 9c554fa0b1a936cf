"""Calls by pages of other origins, if the operator allows them: https://fetch.spec.whatwg.org/#http-cors-protocol."""

from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: Headers that a request may have beyond those that every page may send.
SENT: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
    "X-Api-Key",
    "X-Org-Key",
    "X-Request-Id",
)
#: Headers of an answer that a page may read.
READ: Final = (
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Earshot-Job",
    "Earshot-Model",
    "Earshot-Note",
    "Earshot-Reason",
    "Earshot-Seconds",
    "Retry-After",
    "X-Request-Id",
    "X-Should-Retry",
)
PREFLIGHT_SECONDS: Final = 3600


def cross_origin(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return an application that answers preflights, and lets pages of these origins read answers.

    Keys are in headers which a page has to add itself, so no cookie and no other credential of the browser is allowed.
    """
    from starlette.middleware.cors import CORSMiddleware  # Most services have no need of it.

    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=SENT,
        expose_headers=READ,
        max_age=PREFLIGHT_SECONDS,
    )
