"""A path of the interface: one operation for each of its methods, and 405 for the others."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.http.call import Call
from app.http.operation import Handler, InterfacePart, Operation
from app.http.replies import ErrorRenderer, Reply

C = TypeVar("C")

#: Handlers by path and method.
Table = Mapping[str, Mapping[str, Handler[C]]]


class Resource:
    """The ASGI endpoint of a path."""

    def __init__(self, handlers: Mapping[str, Handler[C]], context: C, part: InterfacePart) -> None:
        self._operations = {method: Operation(handler, context, part) for method, handler in handlers.items()}
        if "GET" in handlers:
            self._operations["HEAD"] = self._operations["GET"]
        self._other = Operation(_not_allowed(self._operations, part.error), None, part)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._operations.get(scope["method"], self._other)(scope, receive, send)


def _not_allowed(methods: Iterable[str], error: ErrorRenderer) -> Handler[None]:
    allow = ", ".join(sorted(methods)).encode("ascii")

    async def method_not_allowed(call: Call, context: None) -> Reply:
        reply = error(405, None)
        reply.headers.append((b"allow", allow))
        return reply

    return method_not_allowed


def mount(prefix: str, table: Table[C], context: C, part: InterfacePart) -> list[Route]:
    return [Route(prefix + path, Resource(handlers, context, part)) for path, handlers in table.items()]
