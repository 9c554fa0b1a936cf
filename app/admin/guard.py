"""Authentication of the operator's interface, which has its own key."""

import hmac
from collections.abc import Iterable
from functools import wraps
from typing import Final

import msgspec
import structlog

from app.admin.admin_bodies import AdminError
from app.admin.nodes import NodeList
from app.http.call import Call
from app.http.descriptions import Operation
from app.http.metrics import Meters
from app.http.operation import Handler
from app.http.replies import Reply, StreamReply, json_reply, phrase
from app.identity.authentication import bearer
from app.identity.changed_keys import ChangedKeys
from app.identity.keys import KeyRateLimiter
from topics import apikeys
from topics.errors import EarshotError, Unauthorized
from topics.ports.administration import LocalAdministration

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

MISSING: Final = "admin key required"
INVALID: Final = "invalid admin key"


class AdminContext(msgspec.Struct, frozen=True):
    """The accounts, the nodes, and the operator's key to them."""

    administration: LocalAdministration
    nodes: NodeList
    meters: Meters
    changed_keys: ChangedKeys
    tries: KeyRateLimiter
    #: Digest of the key (`topics.apikeys.digest`).
    key: bytes


def guarded(operations: Iterable[Operation[AdminContext]]) -> tuple[Operation[AdminContext], ...]:
    return tuple(Operation(_guarded(one.handler), one.description) for one in operations)


def _guarded(handler: Handler[AdminContext]) -> Handler[AdminContext]:
    @wraps(handler)
    async def operation(call: Call, context: AdminContext) -> Reply | StreamReply:
        check_key(call, context)
        reply = await handler(call, context)
        if call.scope["method"] not in ("GET", "HEAD"):
            log.info("administered", operation=handler.__name__, reference=call.scope["path_params"].get("reference"))
        return reply

    return operation


def check_key(call: Call, context: AdminContext) -> None:
    """Accept only the operator's key, sent as `Authorization: Bearer KEY`; count failed attempts.

    Raises:
        Unauthorized: no key, or a wrong one.
        Unavailable: too many failed attempts.
    """
    if not (key := bearer(call)):
        context.meters.key_failed("admin", "missing")
        raise Unauthorized(MISSING)
    context.tries.check(call.address)
    # Compare digests in constant time, so that the time reveals nothing, not even the key's length.
    if not hmac.compare_digest(apikeys.digest(key), context.key):
        context.tries.count(call.address)
        context.meters.key_failed("admin", "invalid")
        raise Unauthorized(INVALID)


def admin_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error as `{error}`; without a fault, use the status's own phrase."""
    reply = json_reply(AdminError(phrase(status) if fault is None else str(fault)), status)
    if status == 401:
        reply.headers.append((b"www-authenticate", b"Bearer"))
    return reply
