"""A Starlette whose two busiest routes do not pass through its router and its error handling.

Chunk uploads and status reads are nearly all of the traffic, and their operations answer every error themselves. The
layers in between would cost such a request a third of the edge's time for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.http.cross_origin import cross_origin
from app.routes import CHUNK_PATH, SENSE_PREFIX, STATUS_PATH

_BUSY_PATH: Final = re.compile(rf"(|{SENSE_PREFIX})/audio_sessions/([^/]+)/(?:status|chunks/([^/]+))")


class ShortCut(Starlette):
    """The same routes as without the short cut, sooner."""

    def __init__(self, routes: list[Route], **options: Any) -> None:
        super().__init__(routes=routes, **options)
        self._endpoints = {route.path: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        busy = None if scope["type"] != "http" or scope.get("root_path") else _BUSY_PATH.fullmatch(scope["path"])
        if busy is None:
            await super().__call__(scope, receive, send)
            return
        prefix, session, chunk = busy.groups()
        path = STATUS_PATH if chunk is None else CHUNK_PATH
        scope["path_params"] = {"session_id": session, "chunk_sequence": chunk}
        await self._endpoints[prefix + path].app(scope, receive, send)


class CrossOriginShortCut(ShortCut):
    """The same for programs in browsers too, which may call it from some other origins."""

    def __init__(self, origins: Sequence[str], routes: list[Route], **options: Any) -> None:
        super().__init__(routes, **options)
        self._front = cross_origin(super().__call__, origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._front(scope, receive, send)
