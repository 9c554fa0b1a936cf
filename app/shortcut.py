"""A Starlette that finds routes by a tree instead of one after the other, and skips its error handling.

Chunk uploads, status reads and job reads are nearly all of the traffic, and operations answer every error themselves.
The layers in between would cost such a request a third of its time in the edge, and more with each route.
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
    #: The next segment if it is a parameter.
    other: Segment | None = None
    route: Route | None = None


class ShortCut(Starlette):
    """Finds the same routes sooner; routes that take the rest of a path use Starlette's search.

    Browser programs of `origins` may call it too. No path is redirected to another.
    """

    def __init__(self, routes: list[Route], origins: Sequence[str] = (), **options: Any) -> None:
        super().__init__(routes=routes, **options)
        self.router.redirect_slashes = False
        self._front = cross_origin(self._serve, origins) if origins else self._serve
        self._root = Segment()
        # If several routes match, the first wins.
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
        await self._front(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None if scope["type"] != "http" or scope.get("root_path") else self._find(scope["path"])
        if found is None:
            await super().__call__(scope, receive, send)
            return
        route, scope["path_params"] = found
        await route.app(scope, receive, send)

    def _find(self, path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a path and its parameters, or None if Starlette must search."""
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
