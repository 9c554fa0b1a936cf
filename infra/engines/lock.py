"""Middleware that lets nobody pass without the key of the engine server."""

from __future__ import annotations

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
        """Serve one ASGI request."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
            # Digests are compared, so that the time tells nothing, not even how long the key is.
            if scheme.lower() != "bearer" or not hmac.compare_digest(apikeys.digest(key.strip()), self._key):
                refusal = error_response(
                    401, "this server needs its key", "invalid_api_key", {"www-authenticate": "Bearer"}
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
