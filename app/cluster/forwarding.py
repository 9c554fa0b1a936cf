"""Forwards requests about sessions and jobs to the node that owns their partition."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from starlette.types import Scope

from app.cluster.takeovers import FORWARDED, STANDBY, Placed, Takeovers
from app.http.bodies import SMALL_BODY, body_pieces, declared_length
from app.http.call import DECLARED, Call
from app.http.metrics import FORWARDS
from app.http.operation import StandIn
from app.http.replies import Headers, Reply, StreamReply
from app.identity.authentication import Authenticator
from topics import traces
from topics.errors import Damaged, NotFound, NotOwned, OwnerAway, Unavailable
from topics.keys import is_id
from topics.ports.standby import Standby
from topics.times import iso_time

if TYPE_CHECKING:
    import aiohttp

PASSED_ON: Final = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"idempotency-key",
        b"if-range",
        b"last-event-id",
        b"range",
        b"traceparent",
        b"tracestate",
        b"x-api-key",
        b"x-org-key",
        b"x-request-id",
    }
)
#: Headers of the connection between the nodes, not of the answer.
DROPPED: Final = frozenset({b"connection", b"date", b"keep-alive", b"server", b"transfer-encoding"})
CONNECT_SECONDS: Final = 2.0
#: Added to the time that the owner may wait for a result.
GRACE_SECONDS: Final = 6.0
#: Longest silence of an event stream; the owner sends something every 10 s.
SILENCE_SECONDS: Final = 25.0
#: The owner writes a long upload to disk before it checks it, and to the log before it answers.
UPLOAD_SECONDS: Final = 120.0
#: Longer answers are streamed.
WHOLE_BYTES: Final = 1 << 20
#: For answers that wait until a job is done or the voice of a long recording is registered.
PATIENT_SECONDS: Final = 3600.0


NO_ANSWER: Final = "the node that owns it does not answer"
UNTRUSTED: Final = "the certificate of the node that owns it is not trusted: "
UNCERTAIN: Final = "; the write may still succeed"
#: Of an answer by a stand-by: a time up to which it knows everything.
AS_OF: Final = b"earshot-as-of"
_READS: Final = frozenset({"GET", "HEAD"})
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE"})
_NO_PARAMETERS: Final[dict[str, str]] = {}


class Forwarder:
    """Keeps connections to the other nodes open; opens the first when needed, so never on a single node."""

    def __init__(
        self, poll_seconds: float, plan: Callable[[], bytes] = lambda: b"1", trust: ssl.SSLContext | None = None
    ) -> None:
        """Mark requests with this node's `plan`, as `Placed` returns it; `trust` checks the certificates of nodes."""
        self._trust = trust
        self.plan = plan
        self._seconds = max(poll_seconds + GRACE_SECONDS, SILENCE_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._trust or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
                auto_decompress=False,
                trace_configs=None if traces.tracer is None else [traces.tracer.forwarding()],
            )
        return self._session

    async def forward(
        self,
        scope: Scope,
        owner: str,
        body: bytes | AsyncIterable[bytes],
        patient: bool = False,
        small: bool = False,
        mark: bytes = b"",
    ) -> Reply | StreamReply:
        """Return the owner's answer to a request; stream it if it is long or of unknown length.

        Close the pieces of a streamed answer even if you read none: they hold the connection.

        With `patient`, wait for the answer while the owner's connection stands, an hour at most.

        A body in pieces is streamed too; errors of its iterator pass through. The owner then has longer to answer,
        unless the body is `small`: held in memory, and as long as the request declares, if it does.

        Raises:
            Unavailable: the owner does not answer; it may be dying while its partitions move to another node.
        """
        import aiohttp
        from yarl import URL

        method, query = scope["method"], scope["query_string"].decode("latin-1")
        # The path is decoded. Dots are quoted too, because `..` would lead to another path.
        path = quote(scope["path"]).replace(".", "%2E")
        url = owner.rstrip("/") + path + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
        declared = [value for name, value in scope["headers"] if name == b"content-length"]
        headers += [(DECLARED, value) for value in declared]
        if small:
            headers += [(b"content-length", value) for value in declared]
        headers += [(FORWARDED, mark or self.plan()), (b"accept-encoding", b"identity")]
        texts = [(name.decode("ascii"), value.decode("utf-8", "replace")) for name, value in headers]
        quick = self._seconds if small or isinstance(body, bytes) else UPLOAD_SECONDS
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=PATIENT_SECONDS if patient else quick)
        try:
            async with asyncio.timeout(None) as deadline:
                sent = _Body(body, deadline, self._seconds)
                # A body in pieces is sent once: without it, aiohttp would repeat some writes on a second connection.
                data = None if method in _READS else aiohttp.AsyncIterablePayload(sent)
                answer = await self._client().request(
                    method, URL(url, encoded=True), data=data, headers=texts, timeout=timeout, allow_redirects=False
                )
                length = answer.headers.get("content-length", "")
                short = length.isdigit() and int(length) <= WHOLE_BYTES
                if short or answer.status == 204 or method == "HEAD":
                    reply = Reply(answer.status, _passed_back(answer), await answer.read())
                    if data is not None and not sent.complete:
                        answer.close()
                    return reply
                pieces = _pieces(answer)
                await anext(pieces)
                return StreamReply(answer.status, _passed_back(answer), pieces)
        except aiohttp.ClientConnectorCertificateError as error:
            raise OwnerAway(UNTRUSTED + getattr(error.certificate_error, "verify_message", "")) from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            if sent.failure is not None:
                raise sent.failure from None
            unsent = method in _READS or isinstance(
                error, ValueError | aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            raise (OwnerAway(NO_ANSWER) if unsent else Unavailable(NO_ANSWER + UNCERTAIN, uncertain=True)) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class _Body:
    """A body that is sent once; it ends the wait for an owner that takes none of it for some seconds."""

    def __init__(self, body: bytes | AsyncIterable[bytes], deadline: asyncio.Timeout, seconds: float) -> None:
        self._body, self._deadline, self._seconds = body, deadline, seconds
        #: The body's own error.
        self.failure: Exception | None = None
        self.complete = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            if self._body:
                yield self._body
        else:
            try:
                async for piece in self._body:
                    self._deadline.reschedule(asyncio.get_running_loop().time() + self._seconds)
                    yield piece
                    self._deadline.reschedule(None)
            except Exception as error:
                self.failure = error
                raise
        self.complete = True


class Placement(msgspec.Struct, frozen=True):
    """Finds the node that answers a request about an id, and forwards the request there."""

    forwarder: Forwarder
    takeovers: Takeovers
    #: What has the id that a path parameter holds.
    placed: Mapping[str, Placed]
    #: The forwarding node is the first to notice that a key changed on it, so it must end streamed answers.
    keys: Authenticator[Any]
    #: Longest body that is forwarded whole, in bytes: no owner reads a longer one.
    body_limit: int = SMALL_BODY
    #: What this node stands by for, if other nodes can own anything.
    standby: Standby | None = None

    async def answer(self, call: Call, stand_in: StandIn | None = None) -> Reply | StreamReply | None:
        """Return the answer of the node that owns the id in the path, None if this node is to answer.

        A request is forwarded again only by a newer plan, so nodes that disagree cannot loop. While the owner is away,
        `stand_in` answers, or another node that stands by for the id.

        Raises:
            Unavailable: the owner does not answer, or there is none.
            ClientGone: the client hung up before the end of the body.
        """
        values = call.scope.get("path_params", _NO_PARAMETERS)
        for parameter, placed in self.placed.items():
            if (id := values.get(parameter)) is not None and is_id(id):
                from_standby = None
                if stand_in is not None and self.standby is not None:
                    from_standby = partial(self._from_standby, call, id, self.standby, stand_in)
                if call.header(FORWARDED) != STANDBY:
                    return await self.takeovers.ask(call, placed, id, partial(self.forward, call), from_standby)
                reply = None
                if not _is_owner(placed, id) and from_standby is not None:
                    reply = await from_standby()
                if reply is None and not _is_owner(placed, id):
                    raise NotOwned("this node does not stand by for it, or is behind")
                return reply
        return None

    async def _from_standby(
        self, call: Call, id: str, standby: Standby, stand_in: StandIn
    ) -> Reply | StreamReply | None:
        """Return the answer from what this node stands by for, or that of another node; None if neither can answer."""
        try:
            as_of = await standby.as_of(id)
            reply = await stand_in(call)
        except (Unavailable, NotFound, Damaged):
            pass  # Deleted or damaged, or too new: only the owner knows.
        else:
            reply.headers.append((AS_OF, iso_time(as_of).encode()))
            return reply
        for url in () if call.header(FORWARDED) else standby.urls(id):
            with suppress(Unavailable):
                self.keys.watch(call)
                reply = await self.forwarder.forward(call.scope, url, b"", mark=STANDBY)
                if reply.status < 500:
                    return reply
                if isinstance(reply, StreamReply):
                    await reply.pieces.aclose()
        return None

    async def forward(self, call: Call, owner: str) -> Reply | StreamReply:
        """Return the owner's answer.

        Raises:
            Unavailable: the owner does not answer.
            ClientGone: the client hung up before the end of the body.
        """
        self.keys.watch(call)
        self.keys.meters.add(FORWARDS)
        if call.scope["method"] in _WITHOUT_BODY or declared_length(call.header(b"content-length")) > self.body_limit:
            return await self.forwarder.forward(call.scope, owner, b"")
        # Only the owner knows the session and its key, so only the owner checks and buffers the body.
        pieces = body_pieces(call.receive, self.body_limit)
        return await self.forwarder.forward(call.scope, owner, pieces, small=True)


def _is_owner(placed: Placed, id: str) -> bool:
    return placed.owner(id) is None and not placed.is_moving(id)


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    import aiohttp

    try:
        # The forwarder takes this one: closing a generator that has not started releases nothing.
        yield b""
        async for piece in answer.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable("the node that owns it has broken off") from error
    finally:
        answer.close()


def _passed_back(answer: aiohttp.ClientResponse) -> Headers:
    return [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in DROPPED]
