"""Requests about sessions and jobs of another node: passed on once, to the node that owns their partition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import TYPE_CHECKING, Final

from app.http.bodies import SMALL_BODY, chunk_body
from app.http.replies import Headers, Reply, StreamReply
from topics.errors import Unavailable

if TYPE_CHECKING:
    import httpx2

    from app.http.operation import Call

#: Marks a request that was passed on: it is answered where it arrives, whoever owns the session by then.
FORWARDED: Final = b"x-earshot-forwarded"
PASSED_ON: Final = frozenset(
    {b"accept", b"content-type", b"x-api-key", b"idempotency-key", b"last-event-id", b"x-request-id"}
)
PASSED_BACK: Final = frozenset(
    {
        b"allow",
        b"cache-control",
        b"content-length",
        b"content-type",
        b"earshot-model",
        b"earshot-reason",
        b"retry-after",
        b"x-accel-buffering",
        b"x-request-id",
    }
)
CONNECT_SECONDS: Final = 2.0
#: Beyond what the owner may wait for a result.
GRACE_SECONDS: Final = 6.0
#: The owner's event stream says something every 10 s.
SILENCE_SECONDS: Final = 25.0
#: A long upload is on the owner's disk before it is looked at, and on its log before it is answered.
UPLOAD_SECONDS: Final = 120.0


class Forwarder:
    """Connections to the other nodes, kept open; made when the first is needed, which on one node is never."""

    def __init__(self, poll_seconds: float) -> None:
        self._seconds = max(poll_seconds + GRACE_SECONDS, SILENCE_SECONDS)
        self._http: httpx2.AsyncClient | None = None

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            import httpx2

            self._http = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))
        return self._http

    async def forward(self, call: Call, owner: str, body: AsyncIterable[bytes] | None = None) -> Reply | StreamReply:
        """Return the owner's answer; one of unknown length is passed back as it arrives.

        A body that is given is passed on as it arrives too, its errors pass through; else it is read from the call.

        Raises:
            Unavailable: the owner does not answer; it may be dying, and its partitions on their way to another node.
            RequestError: the body is too large, as everywhere.
        """
        import httpx2

        scope, content = call.scope, body or b""
        if body is None and scope["method"] not in ("GET", "HEAD", "DELETE"):
            content = await call.body(max(SMALL_BODY, chunk_body(call.generation.chunk_limit)))
        query = scope["query_string"].decode("latin-1")
        url = owner.rstrip("/") + scope["path"] + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
        headers += [(FORWARDED, b"1"), (b"accept-encoding", b"identity")]
        client = self._client()
        reading = self._seconds if body is None else UPLOAD_SECONDS
        timeout = httpx2.Timeout(self._seconds, connect=CONNECT_SECONDS, read=reading)
        request = client.build_request(scope["method"], url, content=content, headers=headers, timeout=timeout)
        try:
            answer = await client.send(request, stream=True)
            if "content-length" in answer.headers or answer.status_code == 204 or scope["method"] == "HEAD":
                return Reply(answer.status_code, _back(answer), await answer.aread())
            return StreamReply(answer.status_code, _back(answer), _arriving(answer))
        except httpx2.TransportError as error:
            raise Unavailable("the node that owns it does not answer") from error

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


async def _arriving(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()


def _back(answer: httpx2.Response) -> Headers:
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() in PASSED_BACK]
