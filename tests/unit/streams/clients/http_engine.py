"""A test engine: it returns scripted answers byte for byte, and records its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.message import Message
from email.parser import BytesParser
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from streams.clients.address import EngineAddress
from tests.waiting import until


class Asked(msgspec.Struct):
    path: str
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def fields(self) -> dict[str, list[bytes]]:
        """The parts of a multipart body."""
        head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        found: dict[str, list[bytes]] = {}
        for part in BytesParser().parsebytes(head + self.body).get_payload():
            assert isinstance(part, Message)
            name = part.get_param("name", header="content-disposition")
            data = part.get_payload(decode=True)
            assert isinstance(data, bytes)
            found.setdefault(str(name), []).append(data)
        return found


def reply(body: object, status: int = 200, *, length: int | None = None, head: str = "") -> bytes:
    """Return an answer; a body that is not bytes becomes JSON. `length` is the declared length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    claimed = len(data) if length is None else length
    return f"HTTP/1.1 {status} X\r\n{head}content-length: {claimed}\r\n\r\n".encode() + data


class Closing(Protocol):
    """A client of an engine, or a service with one."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closing)
T = TypeVar("T")


class HttpEngine:
    """Answers each request by `answer`: bytes, a function, or None for never."""

    def __init__(self, answer: bytes | Callable[[Asked], bytes | None] | None = None) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.at_once = 0
        self.most_at_once = 0
        #: Whether the answer to a request may go.
        self.may_answer: Callable[[Asked], bool] = lambda asked: True
        self.url = ""
        #: The tasks that serve its clients.
        self.connections: set[asyncio.Task[None]] = set()

    def address(self, **given: Any) -> EngineAddress:
        return EngineAddress(**{"url": self.url, "timeout_s": 60.0, **given})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[HttpEngine]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self.connections.add(task)
            try:
                await self._serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self.connections:
                task.cancel()
            await asyncio.gather(*self.connections, return_exceptions=True)
            self.connections.clear()

    def serve(self, make: Callable[[], C], deed: Callable[[C], Awaitable[T]]) -> T:
        """Start, create a client or a service, and run `deed` with it."""

        async def scene() -> T:
            async with self.running():
                client = make()
                try:
                    return await deed(client)
                finally:
                    await client.close()

        return asyncio.run(scene())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            line, _, rest = head.partition(b"\r\n")
            headers = BytesParser().parsebytes(rest)
            body = await reader.readexactly(int(headers["content-length"] or 0))
            asked = Asked(line.split()[1].decode(), headers, body)
            self.asked.append(asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await until(partial(self.may_answer, asked))
            answer = self.answer(asked) if callable(self.answer) else self.answer
            if answer is None:
                await asyncio.Event().wait()
                return
            self.at_once -= 1
            writer.write(answer)
            await writer.drain()
            declared = BytesParser().parsebytes(answer.partition(b"\r\n")[2])["content-length"]
            if declared is None or len(answer.partition(b"\r\n\r\n")[2]) != int(declared):
                return
