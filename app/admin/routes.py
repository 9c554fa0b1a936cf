"""The operator's interface as one table of routes, behind its own key."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from http import HTTPStatus
from typing import Final

import structlog
from starlette.routing import Route

from app.admin import operations as admin
from app.admin.wire import PREFIX
from app.edge import Edge
from app.http.operation import Call, Generation, Handler
from app.http.replies import Reply, StreamReply, json_reply
from app.routes import Resource
from topics import apikeys
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.errors import EarshotError, Unauthorized
from topics.geometry import SESSIONS
from topics.ports.administration import Administration

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

AdminHandler = Callable[[Call, Administration], Awaitable[Reply | StreamReply]]

#: References are ids or names. A name may hold slashes and end as a path does, so the method tells what is meant:
#: POST and PUT name a reference's key or plan, DELETE the reference itself.
ADMIN_ROUTES: Final[Mapping[str, Mapping[str, AdminHandler]]] = {
    "/organizations": {"GET": admin.list_organizations, "POST": admin.create_organization},
    "/organizations/{reference:path}": {"POST": admin.rotate_organization_key, "DELETE": admin.delete_organization},
    "/projects": {"GET": admin.list_projects, "POST": admin.create_project},
    "/projects/{reference:path}": {
        "POST": admin.rotate_project_key,
        "PUT": admin.plan_project,
        "DELETE": admin.delete_project,
    },
    "/usage": {"GET": admin.read_usage},
}


def admin_routes(edge: Edge, administration: Administration, key: bytes | None) -> list[Route]:
    """Return the routes under `/admin/v1`; `key` is the operator's as `apikeys.digest` has it, None for no routes."""
    if key is None:
        return []
    generation = Generation(PREFIX, SESSIONS, DEFAULT_CHUNK_LIMIT, admin_error)

    def guarded(handler: AdminHandler) -> Handler:
        @wraps(handler)
        async def operation(call: Call) -> Reply | StreamReply:
            check_key(call, key)
            reply = await handler(call, administration)
            if call.scope["method"] not in ("GET", "HEAD"):
                log.info(
                    "administered", operation=handler.__name__, reference=call.scope["path_params"].get("reference")
                )
            return reply

        return operation

    return [
        Route(PREFIX + path, Resource({method: guarded(one) for method, one in handlers.items()}, edge, generation))
        for path, handlers in ADMIN_ROUTES.items()
    ]


def check_key(call: Call, key: bytes) -> None:
    """Let the operator pass, who sends `Authorization: Bearer KEY`; whoever else asks is counted.

    Raises:
        Unauthorized: no key, or another one.
    """
    scheme, _, given = call.header(b"authorization").decode("latin-1").strip().partition(" ")
    given = given.strip()
    if scheme.lower() != "bearer" or not given:
        call.edge.meters.key_failed("admin", "missing")
        raise Unauthorized("admin key required")
    # Digests are compared, so that the time tells nothing, not even how long the key is.
    if not hmac.compare_digest(apikeys.digest(given), key):
        call.edge.meters.key_failed("admin", "invalid")
        raise Unauthorized("invalid admin key")


def admin_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error: `{error}`, without a fault the status's own phrase."""
    reply = json_reply({"error": HTTPStatus(status).phrase if fault is None else str(fault)}, status)
    if status == 401:
        reply.headers.append((b"www-authenticate", b"Bearer"))
    return reply
