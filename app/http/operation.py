"""One operation of the interface as an ASGI endpoint: call the handler, answer, measure, and log failures.

Starlette routes to plain ASGI objects without building a request or wrapping a response. Nearly all of the edge's work
is chunk uploads and status reads.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from app.http.bodies import BodyQuota
from app.http.call import Call
from app.http.errors import ClientGone
from app.http.metrics import Meters
from app.http.replies import FINAL, ErrorRenderer, Reply, StreamReply
from app.http.sockets import SWITCHED
from app.http.streaming import stream
from topics.errors import DirectoryDown, EarshotError, Unauthorized, Unavailable
from topics.keys import is_id, shown

C = TypeVar("C")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

ID_HEADER: Final = b"x-request-id"
_FIT_FOR_A_LOG: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")

#: Answers a request, with the context of its room: the ports and the memory that the room's operations share.
Handler = Callable[[Call, C], Awaitable[Reply | StreamReply]]

#: Answers a request like a handler with its context.
StandIn = Callable[[Call], Awaitable[Reply | StreamReply]]

#: Their refusals are logged only at debug level, because they come every few seconds.
PROBES: Final = frozenset({"healthz", "readyz"})


class OtherNodes(Protocol):
    """Finds the node that owns the subject of a request, and forwards the request to it."""

    async def answer(self, call: Call, stand_in: StandIn | None = None) -> Reply | StreamReply | None:
        """Return the other node's answer, None if this node is to answer.

        While that node is away, `stand_in` may answer, from what this node stands by for.
        """


class InterfacePart(msgspec.Struct, frozen=True):
    """What the operations of one part of the interface share."""

    error: ErrorRenderer
    meters: Meters
    #: Memory for bodies while they arrive, shared by all parts.
    room: BodyQuota
    #: None if every node can answer.
    placement: OtherNodes | None = None


class Endpoint(Generic[C]):
    """The ASGI endpoint of one handler."""

    def __init__(self, handler: Handler[C], context: C, part: InterfacePart, standby: C | None = None) -> None:
        """Answer with the context `standby`, if there is one, what this node stands by for."""
        self.name = handler.__name__
        self._stand_in: StandIn | None = None if standby is None else lambda call: handler(call, standby)
        self._handler = handler
        self._context = context
        self._part = part
        self._timing = part.meters.timing(self.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        call = Call(scope, receive, self._part.room)
        fault: Exception | None = None
        reply: Reply | StreamReply | None
        try:
            placement = self._part.placement
            reply = None if placement is None else await placement.answer(call, self._stand_in)
            if reply is None:
                call.owner = None
                reply = await self._handler(call, self._context)
        except ClientGone:
            return
        except asyncio.CancelledError:
            # The server is stopping and has waited long enough for this request.
            fault = Unavailable("the service stops", uncertain=scope["method"] not in ("GET", "HEAD"))
            reply = error_reply(self._part.error, fault)
        except EarshotError as error:
            fault = error
            reply = error_reply(self._part.error, error)
        except Exception as error:
            # The failure is logged; the client learns nothing internal.
            fault = error
            reply = self._part.error(500, None)
        if reply.status >= 400 or fault is not None:
            self._count_refusal(call, reply, fault)
            # The traceback keeps this frame, and so the body, alive until the garbage collector runs.
            fault = None
        self._timing.observe(perf_counter() - started)
        if reply is SWITCHED:
            return
        if isinstance(reply, StreamReply):
            failure = await stream(reply, scope, receive, send, call.ended)
            if failure is not None:
                write = log.info if isinstance(failure, Unauthorized) else log.warning
                write("response cut off", operation=self.name, reason=repr(failure))
            return
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _count_refusal(self, call: Call, reply: Reply | StreamReply, fault: Exception | None) -> None:
        if self.name not in PROBES:  # A node that starts or is asked to leave refuses nobody.
            self._part.meters.refused(reply.status)
        if ID_HEADER not in dict(reply.headers):  # otherwise the owner's answer has one
            reply.headers.append((ID_HEADER, request_id(call)))
        request = dict(reply.headers)[ID_HEADER].decode("latin-1")
        ids = {name: shown(id) for name, id in call.scope.get("path_params", {}).items() if is_id(id)}
        line = log.bind(operation=self.name, status=reply.status, request=request, **ids)
        if call.owner is not None:
            line = line.bind(owner=call.owner)
        if fault is not None and not isinstance(fault, EarshotError):
            line.error("request failed", exc_info=fault)
            return
        write = line.debug if self.name in PROBES else line.warning if reply.status >= 500 else line.info
        cause = None if fault is None else fault.__cause__
        if fault is None:
            write("request refused", reason="the node that owns it refused it")
        elif cause is None:
            write("request refused", reason=str(fault) or type(fault).__name__)
        else:
            write("request refused", reason=str(cause) or type(cause).__name__, error=str(fault))


def error_reply(shape: ErrorRenderer, error: EarshotError) -> Reply:
    """Return the answer to a request that failed with a named error, in the shape of its part of the interface."""
    reply = shape(error.status, error)
    reply.headers.extend(error.headers)
    if isinstance(error, Unavailable | DirectoryDown):
        reply.headers.extend([(b"retry-after", b"%d" % error.retry_after), *[FINAL] * error.uncertain])
    return reply


def request_id(call: Call) -> bytes:
    """Return the client's X-Request-Id if it is fit for a log, otherwise a new one."""
    own = call.header(ID_HEADER)
    return own if _FIT_FOR_A_LOG.fullmatch(own) else secrets.token_hex(8).encode("ascii")
