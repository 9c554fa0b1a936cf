"""Middleware that requires the engine server's key, or without a key refuses requests from web pages."""

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from infra.engines.errors import error_response
from topics import apikeys


class KeyMiddleware:
    """Answers 401, in the shape of OpenAI's protocols, to requests without `Authorization: Bearer KEY`."""

    def __init__(self, app: ASGIApp, key: str, open_paths: Sequence[str]) -> None:
        self._app = app
        self._key = apikeys.digest(key)
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
            # Compare digests, so that the time reveals nothing, not even the key's length.
            if scheme.lower() != "bearer" or not hmac.compare_digest(apikeys.digest(key.strip()), self._key):
                refusal = error_response(
                    401, "this server needs its key", "invalid_api_key", {"www-authenticate": "Bearer"}
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class NoPagesMiddleware:
    """Answers 403 to web pages of any site, because browsers let them reach addresses that are open only locally.

    A browser sends `Origin` with everything that a page posts.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and "origin" in Headers(scope=scope):
            refusal = error_response(403, "pages in a browser may not call this server", "forbidden")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)
