"""A Starlette whose routes are found at once: not one after the other, and without its error handling.

Chunk uploads, status reads and questions for jobs are nearly all of the traffic, and operations answer every error
themselves. The layers in between would cost such a request a third of the edge's time for it, and more with each route.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.http.cross_origin import cross_origin


class Segment(msgspec.Struct):
    """A node of the path tree: its possible next segments, and the route that ends here."""

    named: dict[str, Segment] = {}
    #: For a segment that is a parameter.
    other: Segment | None = None
    route: Route | None = None


class ShortCut(Starlette):
    """The same routes as without the short cut, sooner; those that take the rest of a path go the long way."""

    def __init__(self, routes: list[Route], **options: Any) -> None:
        super().__init__(routes=routes, **options)
        self._root = Segment()
        # If several routes fit, the first wins.
        for route in reversed(routes):
            if ":" not in route.path:
                self._add(route)

    def _add(self, route: Route) -> None:
        segment = self._root
        for part in route.path.split("/"):
            if part.startswith("{"):
                segment.other = segment = segment.other or Segment()
            else:
                segment = segment.named.setdefault(part, Segment())
        segment.route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        found = None if scope["type"] != "http" or scope.get("root_path") else self._find(scope["path"])
        if found is None:
            await super().__call__(scope, receive, send)
            return
        route, scope["path_params"] = found
        await route.app(scope, receive, send)

    def _find(self, path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a path and its parameters, None where Starlette has to look."""
        segment, values = self._root, []
        for part in path.split("/"):
            named = segment.named.get(part)
            if named is not None:
                segment = named
            elif part and segment.other is not None:
                segment = segment.other
                values.append(part)
            else:
                return None
        if segment.route is None:
            return None
        return segment.route, dict(zip(segment.route.param_convertors, values, strict=True))


class CrossOriginShortCut(ShortCut):
    """The same for programs in browsers too, which may call it from some other origins."""

    def __init__(self, origins: Sequence[str], routes: list[Route], **options: Any) -> None:
        super().__init__(routes, **options)
        self._front = cross_origin(super().__call__, origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._front(scope, receive, send)
