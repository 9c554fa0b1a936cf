"""Requests to an ASGI application without a server."""

import asyncio
import json
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Protocol, Self

from starlette.types import ASGIApp


class Served(Protocol):
    @property
    def app(self) -> ASGIApp: ...


class Exchange:
    """One request, by a client that can send slowly, stop reading and hang up."""

    def __init__(
        self, served: Served, path: str, method: str = "GET", body: bytes | Iterable[bytes] = (), /, **headers: str
    ) -> None:
        """Send a whole body, or pieces of one, which ends with an empty piece or not at all."""
        self.method, self.path = method, path
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        #: True once the answer is complete.
        self.whole = False
        #: True once the application has read all that is sent.
        self.waiting = False
        self.hang_up = asyncio.Event()
        #: Cleared: the client stops reading.
        self.reading = asyncio.Event()
        self.reading.set()
        self._more = asyncio.Event()
        #: Seconds before each piece.
        self.pause = 0.0
        self._coming = iter([(body, False)] if isinstance(body, bytes) else [(piece, bool(piece)) for piece in body])
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode("ascii"),
            "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
        self.task = asyncio.ensure_future(served.app(scope, self._receive, self._send))

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def until(self, enough: Callable[[bytes], bool]) -> None:
        """Wait until the body is long enough."""
        async with asyncio.timeout(60):
            while not enough(self.body):
                await self._more.wait()
                self._more.clear()

    async def end(self) -> Self:
        """Wait for the end of the answer, complete or not."""
        async with asyncio.timeout(60):
            await self.task
        return self

    async def leave(self) -> None:
        self.hang_up.set()
        await self.end()

    async def _receive(self) -> MutableMapping[str, Any]:
        if self.pause:
            await asyncio.sleep(self.pause)
        for piece, more in self._coming:
            return {"type": "http.request", "body": piece, "more_body": more}
        self.waiting = True
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            assert len(self.headers) == len(message["headers"]), "a header appears twice"
            return
        self.body += message.get("body", b"")
        self.whole = not message.get("more_body", False)
        self._more.set()
