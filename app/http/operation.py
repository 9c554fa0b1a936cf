"""One operation of the interface as an ASGI endpoint: call the handler, answer, measure, and log what failed.

Endpoints are ASGI objects, which Starlette routes to without building a request or wrapping a response: chunk uploads
and status reads are most of what the edge does.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final, TypeVar

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from app.edge import Edge
from app.http.bodies import ClientGone, Flood, Stalled, read_body
from app.http.forwarding import FORWARDED
from app.http.replies import CLOSE, Headers, Reply, Shape, StreamReply
from app.http.streaming import stream
from app.keys import Keyring
from topics.errors import DirectoryDown, EarshotError, NotFound, Unauthorized, Unavailable
from topics.geometry import Geometry
from topics.keys import is_id
from topics.ports.directory import Principal

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_ID_HEADER: Final = b"x-request-id"
_NOWHERE: Final[dict[str, str]] = {}
_FIT_FOR_A_LOG: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Generation(msgspec.Struct, frozen=True):
    """What differs between the parts of the interface, and between the places where one part is served."""

    prefix: str
    geometry: Geometry
    #: Bytes of decoded data in one chunk.
    chunk_limit: int
    error: Shape


class Call:
    """One request on its way through an operation."""

    __slots__ = ("edge", "generation", "receive", "scope")

    def __init__(self, edge: Edge, generation: Generation, scope: Scope, receive: Receive) -> None:
        self.edge = edge
        self.generation = generation
        self.scope = scope
        self.receive = receive

    def header(self, name: bytes) -> bytes:
        """Return a header's value by its lower-case name, b"" when absent."""
        for candidate, value in self.scope["headers"]:
            if candidate == name:
                return bytes(value)
        return b""

    def path(self, parameter: str) -> str:
        """Return a parameter of the route's path."""
        return str(self.scope["path_params"][parameter])

    @property
    def session(self) -> str:
        """The session id of the path.

        Raises:
            NotFound: it has not the form of an id, so there is no such session.
        """
        session = self.path("session_id")
        if not is_id(session):
            raise NotFound("the session does not exist or was deleted")
        return session

    async def principal(self) -> Principal:
        """Return whom the request's project key speaks for; a request without a good one is counted.

        Raises:
            Unauthorized, DirectoryDown: as `Keyring.holder`.
        """
        return await self._holder(b"x-api-key", self.edge.project_keys, "project")

    async def organization(self) -> str:
        """Return the organization (id) of the request's organization key; otherwise as `principal`."""
        return await self._holder(b"x-org-key", self.edge.organization_keys, "organization")

    async def _holder(self, header: bytes, keys: Keyring[T], kind: str) -> T:
        key = self.header(header).decode("latin-1").strip()
        try:
            return await keys.holder(key)
        except Unauthorized:
            self.edge.meters.key_failed(kind, "invalid" if key else "missing")
            raise
        except DirectoryDown:
            self.edge.meters.key_failed(kind, "down")
            raise

    async def body(self, limit: int) -> bytes:
        """Read the body; errors as `bodies.read_body`."""
        return await read_body(self.receive, self.header(b"content-length"), limit)


Handler = Callable[[Call], Awaitable[Reply | StreamReply]]

#: Asked every few seconds, and told apart by their status alone.
PROBES: Final = frozenset({"healthz", "readyz"})


class Operation:
    """The ASGI endpoint of one handler at one generation."""

    def __init__(self, handler: Handler, edge: Edge, generation: Generation) -> None:
        self.name = handler.__name__
        self._handler = handler
        self._edge = edge
        self._generation = generation
        self._timing = edge.meters.timing(self.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = perf_counter()
        call = Call(self._edge, self._generation, scope, receive)
        fault: Exception | None = None
        reply: Reply | StreamReply
        try:
            owner = self._elsewhere(call)
            reply = await (self._handler(call) if owner is None else self._edge.forwarder.forward(call, owner))
        except ClientGone:
            return
        except asyncio.CancelledError:
            # The server stops, and has waited long enough for this request.
            fault = Unavailable("the service stops")
            reply = self._named(fault)
        except EarshotError as error:
            fault = error
            reply = self._named(error)
        except Exception as error:
            # What broke is for the log; the client is told nothing about our inside.
            fault = error
            reply = self._generation.error(500, None)
        if reply.status >= 400 or fault is not None:
            self._refused(call, reply, fault)
        self._timing.observe(perf_counter() - started)
        if isinstance(reply, StreamReply):
            broken = await stream(reply, scope, receive, send)
            if broken is not None:
                log.warning("response cut off", operation=self.name, reason=repr(broken))
            return
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _named(self, error: EarshotError) -> Reply:
        reply = self._generation.error(error.status_hint, error)
        reply.headers.extend(_hints(error))
        return reply

    def _elsewhere(self, call: Call) -> str | None:
        """Return the node to ask instead; a request is passed on once, so that nodes that disagree make no circle."""
        named = call.scope.get("path_params", _NOWHERE)
        if (session := named.get("session_id")) is not None:
            owner = self._edge.sessions.owner(session) if is_id(session) else None
        elif (job := named.get("job_id")) is not None:
            owner = self._edge.jobs.owner(job) if is_id(job) else None
        else:
            return None
        return None if owner is None or call.header(FORWARDED) else owner

    def _refused(self, call: Call, reply: Reply | StreamReply, fault: Exception | None) -> None:
        self._edge.meters.refused(reply.status)
        if _ID_HEADER not in dict(reply.headers):  # else the node that owns it gave one
            reply.headers.append((_ID_HEADER, _request_id(call).encode("ascii")))
        request = dict(reply.headers)[_ID_HEADER].decode("latin-1")
        line = log.bind(operation=self.name, status=reply.status, request=request)
        if fault is not None and not isinstance(fault, EarshotError):
            line.error("request failed", exc_info=fault)
            return
        write = line.debug if self.name in PROBES else line.warning if reply.status >= 500 else line.info
        why = None if fault is None else fault.__cause__ or fault
        write("request refused", reason="by verdict" if why is None else str(why) or type(why).__name__)


def _hints(error: EarshotError) -> Headers:
    if isinstance(error, Unavailable):
        return [(b"retry-after", b"%d" % error.retry_after)]
    return [CLOSE] if isinstance(error, Flood | Stalled) else []


def _request_id(call: Call) -> str:
    """The caller's X-Request-Id where it is fit for a log, else a fresh one."""
    given = call.header(_ID_HEADER).decode("latin-1")
    return given if _FIT_FOR_A_LOG.fullmatch(given) else secrets.token_hex(8)
