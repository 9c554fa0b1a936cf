"""Requests for sessions of another node: passed on once, to the node that owns the session's partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.bodies import SMALL_BODY, chunk_body
from app.replies import Headers, Reply
from topics.errors import Unavailable

if TYPE_CHECKING:
    import httpx2

    from app.operation import Call

#: Marks a request that was passed on: it is answered where it arrives, whoever owns the session by then.
FORWARDED: Final = b"x-earshot-forwarded"
PASSED_ON: Final = frozenset({b"content-type", b"x-api-key", b"idempotency-key", b"x-request-id"})
PASSED_BACK: Final = frozenset({"content-type", "retry-after", "x-request-id", "allow"})
CONNECT_SECONDS: Final = 2.0
#: Beyond what the owner may wait for a result.
GRACE_SECONDS: Final = 6.0


class Forwarder:
    """Connections to the other nodes, kept open; made when the first is needed, which on one node is never."""

    def __init__(self, poll_seconds: float) -> None:
        self._seconds = poll_seconds + GRACE_SECONDS
        self._http: httpx2.AsyncClient | None = None

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            import httpx2

            timeout = httpx2.Timeout(self._seconds, connect=CONNECT_SECONDS)
            self._http = httpx2.AsyncClient(timeout=timeout, limits=httpx2.Limits(max_connections=None))
        return self._http

    async def forward(self, call: Call, owner: str) -> Reply:
        """Return the owner's answer.

        Raises:
            Unavailable: the owner does not answer; it may be dying, and its partitions on their way to another node.
            RequestError: the body is too large, as everywhere.
        """
        from httpx2 import TransportError

        scope, body = call.scope, b""
        if scope["method"] not in ("GET", "HEAD", "DELETE"):
            body = await call.body(max(SMALL_BODY, chunk_body(call.generation.chunk_limit)))
        query = scope["query_string"].decode("latin-1")
        url = owner.rstrip("/") + scope["path"] + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
        headers.append((FORWARDED, b"1"))
        try:
            answer = await self._client().request(scope["method"], url, content=body, headers=headers)
        except TransportError as error:
            raise Unavailable("the node that owns the session does not answer") from error
        return Reply(answer.status_code, _back(answer), answer.content)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


def _back(answer: httpx2.Response) -> Headers:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items() if name in PASSED_BACK]
    if answer.status_code != 204:
        headers.append((b"content-length", b"%d" % len(answer.content)))
    return headers
