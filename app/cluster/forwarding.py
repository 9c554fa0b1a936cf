"""Forwards requests about sessions and jobs, once, to the node that owns their partition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from starlette.types import Scope

from app.http.bodies import SMALL_BODY, body_pieces, declared_length
from app.http.call import DECLARED, Call
from app.http.metrics import FORWARDS
from app.http.replies import Headers, Reply, StreamReply
from app.identity.authentication import Authenticator
from topics.errors import Unavailable
from topics.keys import is_id

if TYPE_CHECKING:
    import httpx2

#: Marks a forwarded request. The receiving node answers it, even if the owner has changed since.
FORWARDED: Final = b"x-earshot-forwarded"
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
UNCERTAIN: Final = "; the write may still succeed"
_READS: Final = frozenset({"GET", "HEAD"})
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE"})
_NO_PARAMETERS: Final[dict[str, str]] = {}


class Forwarder:
    """Keeps connections to the other nodes open; opens the first when needed, so never on a single node."""

    def __init__(self, poll_seconds: float) -> None:
        self._seconds = max(poll_seconds + GRACE_SECONDS, SILENCE_SECONDS)
        self._http: httpx2.AsyncClient | None = None

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            import httpx2

            self._http = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))
        return self._http

    async def forward(
        self, scope: Scope, owner: str, body: bytes | AsyncIterable[bytes], patient: bool = False, small: bool = False
    ) -> Reply | StreamReply:
        """Return the owner's answer to a request; stream it if it is long or of unknown length.

        Close the pieces of a streamed answer even if you read none: they hold the connection.

        With `patient`, wait for the answer while the owner's connection stands, an hour at most.

        A body in pieces is streamed too; errors of its iterator pass through. The owner then has longer to answer,
        unless the body is `small` and so held in memory.

        Raises:
            Unavailable: the owner does not answer; it may be dying while its partitions move to another node.
        """
        import httpx2

        query = scope["query_string"].decode("latin-1")
        # The path is decoded. Dots are quoted too, because `..` would lead to another path.
        path = quote(scope["path"]).replace(".", "%2E")
        url = owner.rstrip("/") + path + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
        headers += [(DECLARED, value) for name, value in scope["headers"] if name == b"content-length"]
        headers += [(FORWARDED, b"1"), (b"accept-encoding", b"identity")]
        client = self._client()
        quick = self._seconds if small or isinstance(body, bytes) else UPLOAD_SECONDS
        reading = PATIENT_SECONDS if patient else quick
        timeout = httpx2.Timeout(self._seconds, connect=CONNECT_SECONDS, read=reading)
        try:
            request = client.build_request(scope["method"], url, content=body, headers=headers, timeout=timeout)
            answer = await client.send(request, stream=True)
            length = answer.headers.get("content-length", "")
            short = length.isdigit() and int(length) <= WHOLE_BYTES
            if short or answer.status_code == 204 or scope["method"] == "HEAD":
                return Reply(answer.status_code, _passed_back(answer), await answer.aread())
            pieces = _pieces(answer)
            await anext(pieces)
            return StreamReply(answer.status_code, _passed_back(answer), pieces)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            unsent = scope["method"] in _READS or isinstance(
                error, httpx2.InvalidURL | httpx2.ConnectError | httpx2.ConnectTimeout
            )
            raise Unavailable(NO_ANSWER if unsent else NO_ANSWER + UNCERTAIN, uncertain=not unsent) from error

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


class Placement(msgspec.Struct, frozen=True):
    """Finds the node that answers a request about an id, and forwards the request there."""

    forwarder: Forwarder
    #: By the path parameter that holds an id: returns the URL of the node that owns it, None for this one.
    owners: Mapping[str, Callable[[str], str | None]]
    #: The forwarding node is the first to notice that a key changed on it, so it must end streamed answers.
    keys: Authenticator[Any]
    #: Longest body that is forwarded whole, in bytes: no owner reads a longer one.
    body_limit: int = SMALL_BODY

    def other_owner(self, call: Call) -> str | None:
        """Return the node to ask instead, or None. A request is forwarded once, so nodes that disagree cannot loop."""
        values = call.scope.get("path_params", _NO_PARAMETERS)
        for parameter, owner_of in self.owners.items():
            if (id := values.get(parameter)) is not None and is_id(id):
                owner = owner_of(id)
                return None if owner is None or call.header(FORWARDED) else owner
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


async def _pieces(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    import httpx2

    try:
        # The forwarder takes this one: closing a generator that has not started releases nothing.
        yield b""
        async for piece in answer.aiter_raw():
            yield piece
    except httpx2.TransportError as error:
        raise Unavailable("the node that owns it has broken off") from error
    finally:
        await answer.aclose()


def _passed_back(answer: httpx2.Response) -> Headers:
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in DROPPED]
