"""Middleware that reads the rest of a request's body before the answer is sent."""

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Reading stops at this size or time; the client may then see a reset instead of the answer.
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_S: Final = 10.0


class DrainMiddleware:
    """Reads the body to its end before an answer: closing a connection with unread data would reset it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        whole = False

        async def watched() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def drain() -> None:
            left = MOST_BYTES
            while not whole and left > 0:
                left -= len((await watched()).get("body", b""))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not whole:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(MOST_S):
                        await drain()
                if not whole:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, watched, answer)
