"""Middleware that requires the engine server's key, or without a key refuses requests from web pages."""

import hmac
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from infra.engines.errors import error_response
from topics import apikeys

#: Answers without a key too.
HEALTH: Final = "/healthz"


class LockMiddleware:
    """Refuses requests in the shape of OpenAI's protocols.

    With a key, requests without `Authorization: Bearer KEY` get 401. Without one, web pages of any site get 403:
    browsers let them reach addresses that are open locally only. A browser sends `Origin` with all that a page posts.
    """

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app = app
        self._key = None if key is None else apikeys.digest(key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._key is None:
            if "origin" in headers:
                return error_response(403, "pages in a browser may not call this server", "forbidden")
        elif scope["path"] != HEALTH:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            # Compare digests, so that the time reveals nothing, not even the key's length.
            if scheme.lower() != "bearer" or not hmac.compare_digest(apikeys.digest(key.strip()), self._key):
                needed = {"www-authenticate": "Bearer"}
                return error_response(401, "this server needs its key", "invalid_api_key", needed)
        return None
