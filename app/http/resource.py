"""A part of the interface, and its paths: one operation for each method of a path, and 405 for the others."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.bodies import BodyQuota
from app.http.call import Call
from app.http.descriptions import Operation
from app.http.metrics import Meters
from app.http.operation import Endpoint, Handler, InterfacePart, OtherNodes
from app.http.replies import ErrorRenderer, GenericError, Reply, session_error
from topics import traces

C = TypeVar("C")


class Part(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """A part of the interface: its operations, and what they share."""

    #: Tag in the documents, with its description.
    name: str
    text: str
    prefix: str = ""
    #: Another prefix with the same paths.
    alias: str = ""
    operations: Sequence[Operation[C]]
    error: ErrorRenderer = session_error
    #: Types of JSON errors by status; 0 stands for all others.
    faults: Mapping[int, Any] = MappingProxyType({0: GenericError})

    @property
    def table(self) -> Mapping[str, Mapping[str, Operation[C]]]:
        """Return the operations by path and method."""
        table: dict[str, dict[str, Operation[C]]] = {}
        for one in self.operations:
            method, *paths = one.description.route.split()
            for path in paths:
                table.setdefault(path, {})[method] = one
        return table

    def without(self, *operations: Operation[C]) -> "Part[C]":
        return msgspec.structs.replace(self, operations=[one for one in self.operations if one not in operations])


class Resource:
    """The ASGI endpoint of a path."""

    def __init__(
        self, operations: Mapping[str, Operation[C]], context: C, part: InterfacePart, standby: C | None
    ) -> None:
        self._endpoints: dict[str, Endpoint[Any]] = {
            method: Endpoint(one.handler, context, part, standby if one.description.standby else None)
            for method, one in operations.items()
        }
        if "GET" in operations:
            self._endpoints["HEAD"] = self._endpoints["GET"]
        self._other = Endpoint(_not_allowed(self._endpoints, part.error), None, part)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._endpoints.get(scope["method"], self._other)(scope, receive, send)


def _not_allowed(methods: Iterable[str], error: ErrorRenderer) -> Handler[None]:
    allow = ", ".join(sorted(methods)).encode("ascii")

    async def method_not_allowed(call: Call, context: None) -> Reply:
        reply = error(405, None)
        reply.headers.append((b"allow", allow))
        return reply

    return method_not_allowed


def mount(
    part: Part[C],
    context: C,
    meters: Meters,
    room: BodyQuota,
    placement: OtherNodes | None = None,
    prefix: str | None = None,
    standby: C | None = None,
) -> list[Route]:
    """Return the routes of a part, under its own prefix or another.

    With the context `standby`, operations of stand-bys read what this node stands by for.
    """
    shared = InterfacePart(part.error, meters, room, placement)
    routes: list[Route] = []
    for path, row in part.table.items():
        endpoint: ASGIApp = Resource(row, context, shared, standby)
        path = (part.prefix if prefix is None else prefix) + path
        routes.append(Route(path, endpoint if traces.tracer is None else traces.tracer.serving(path, endpoint)))
    return routes
