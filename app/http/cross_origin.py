"""Cross-origin requests, if the operator allows them: https://fetch.spec.whatwg.org/#http-cors-protocol."""

from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: Request headers allowed beyond the safelisted ones.
SENT: Final = (
    "Authorization",
    "Content-Type",
    "Earshot-Captured-At",
    "Idempotency-Key",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
    "X-Api-Key",
    "X-Org-Key",
    "X-Request-Id",
)
#: Response headers that a page may read.
READ: Final = (
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Earshot-As-Of",
    "Earshot-Job",
    "Earshot-Model",
    "Earshot-Note",
    "Earshot-Reason",
    "Earshot-Seconds",
    "Earshot-Warning",
    "Retry-After",
    "X-Request-Id",
    "X-Should-Retry",
)
PREFLIGHT_SECONDS: Final = 3600


def cross_origin(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return an application that answers preflights and lets pages of these origins read answers.

    Pages must add keys as headers themselves, so cookies and other credentials of the browser are not allowed.
    """
    from starlette.middleware.cors import CORSMiddleware  # Most deployments do not need it.

    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=SENT,
        expose_headers=READ,
        max_age=PREFLIGHT_SECONDS,
    )
