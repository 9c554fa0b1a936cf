"""Forwards requests about sessions and jobs to the node that owns their partition."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.types import Scope

from app.cluster.node_client import CHUNKED, READS, Answer, BodyFailed, Broken, NoConnection, NodeClient, Request
from app.cluster.takeovers import FORWARDED, STANDBY, Placed, Takeovers
from app.http.bodies import SMALL_BODY, body_pieces, declared_length
from app.http.call import DECLARED, Call
from app.http.metrics import FORWARDS
from app.http.operation import StandIn
from app.http.replies import Reply, StreamReply
from app.identity.authentication import Authenticator
from topics import traces
from topics.errors import Damaged, NotFound, NotOwned, OwnerAway, Unavailable
from topics.keys import is_id
from topics.ports.standby import Standby
from topics.times import iso_time

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
#: For answers that wait until a job is done or the voice of a long recording is registered.
PATIENT_SECONDS: Final = 3600.0


NO_ANSWER: Final = "the node that owns it does not answer"
UNTRUSTED: Final = "the certificate of the node that owns it is not trusted: "
UNCERTAIN: Final = "; the write may still succeed"
#: Of an answer by a stand-by: a time up to which it knows everything.
AS_OF: Final = b"earshot-as-of"
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE"})
_NO_PARAMETERS: Final[dict[str, str]] = {}


class Forwarder:
    """Sends requests to the other nodes."""

    def __init__(
        self, poll_seconds: float, plan: Callable[[], bytes] = lambda: b"1", trust: ssl.SSLContext | None = None
    ) -> None:
        """Mark requests with this node's `plan`, as `Placed` returns it; `trust` checks the certificates of nodes."""
        self.plan = plan
        self._seconds = max(poll_seconds + GRACE_SECONDS, SILENCE_SECONDS)
        self._client = NodeClient(trust)
        ask = self._client.ask
        self._ask = ask if traces.tracer is None else traces.tracer.forwarding(ask)

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
        method, query = scope["method"], scope["query_string"]
        # The path is decoded. Dots are quoted too, because `..` would lead to another path.
        path = quote(scope["path"]).replace(".", "%2E").encode()
        headers, declared = [(FORWARDED, mark or self.plan()), (b"accept-encoding", b"identity")], b""
        for name, value in scope["headers"]:
            if name in PASSED_ON:
                headers.append((name, value))
            elif name == b"content-length":
                declared = value
        if declared:
            headers.append((DECLARED, declared))
        pieces: AsyncIterable[bytes] | None = None
        if isinstance(body, bytes):
            pieces = _whole(body) if body else None
            if method not in READS:
                headers.append((b"content-length", b"%d" % len(body)))
        else:
            pieces = body
            headers.append((b"content-length", declared) if small and declared else CHUNKED)
        silence = UPLOAD_SECONDS if pieces is body and not small else self._seconds
        request = Request(
            method,
            path + (b"?" + query if query else b""),
            headers,
            pieces,
            self._seconds,
            PATIENT_SECONDS if patient else silence,
        )
        try:
            answer = await self._ask(owner, request, CONNECT_SECONDS)
        except ssl.SSLCertVerificationError as error:
            raise OwnerAway(UNTRUSTED + error.verify_message) from error
        except BodyFailed as failed:
            raise failed.error from None
        except (NoConnection, Broken, TimeoutError) as error:
            if request.is_read or isinstance(error, NoConnection):
                raise OwnerAway(NO_ANSWER) from error
            raise Unavailable(NO_ANSWER + UNCERTAIN, uncertain=True) from error
        passed_back = [(name, value) for name, value in answer.headers if name not in DROPPED]
        if answer.is_complete:
            answer.release()
            return Reply(answer.status, passed_back, answer.body)
        streamed = _pieces(answer)
        await anext(streamed)
        return StreamReply(answer.status, passed_back, streamed)

    async def close(self) -> None:
        await self._client.close()


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _pieces(answer: Answer) -> AsyncGenerator[bytes, None]:
    try:
        # The forwarder takes this one: closing a generator that has not started releases nothing.
        yield b""
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                yield piece
    except (Broken, TimeoutError) as error:
        raise Unavailable("the node that owns it has broken off") from error
    finally:
        answer.close()


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
