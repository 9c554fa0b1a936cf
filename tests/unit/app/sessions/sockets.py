"""Sockets for tests: an edge behind the service's own connections, and a client using `websockets`."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from typing import Any, Final

import jsonschema_rs
import pytest
import uvicorn
from websockets.asyncio.client import ClientConnection as Client
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.documents import asyncapi
from infra.transport.connections import ConnectionLimits, Connections
from infra.transport.http_protocol import ClientConnection
from tests.contract.answers import hold_answer
from tests.contract.api import RAW, tone
from tests.unit.app.conftest import House
from tests.waiting import until
from topics.keys import new_id
from topics.sessions.records import Opened

LIMITS = ConnectionLimits(connections=200, per_address=None, idle_seconds=30.0, slowest=1000)
PROTOCOL = "earshot.v1"
HALF = tone(0.5)
END = '{"type":"end"}'
UPGRADE: Final = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
MAKING = "/api/v1/socket?content_type=audio/x-raw;%20rate=16000;%20format=s16le"


DOCUMENT: Final = asyncapi.document()


def hold(message: dict[str, Any]) -> None:
    """Validate a message of the service against the AsyncAPI document."""
    kinds = [one["title"] for one in DOCUMENT["components"]["messages"].values() if one["name"] == message["type"]]
    sent = [ref["$ref"].rpartition("/")[2] for ref in DOCUMENT["operations"]["send-socket"]["messages"]]
    (kind,) = set(kinds) & set(sent)
    _judge(kind).validate(message)


@cache
def _judge(kind: str) -> Any:
    schema = {"$ref": f"#/components/schemas/{kind}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft7Validator(schema)


class Line:
    """The client's side of one socket."""

    def __init__(self, socket: Client) -> None:
        self.socket = socket

    async def next(self) -> dict[str, Any]:
        message = await asyncio.wait_for(self.socket.recv(), 30)
        assert isinstance(message, str)
        read: dict[str, Any] = json.loads(message)
        hold(read)
        return read

    async def next_of(self, kind: str) -> dict[str, Any]:
        while (message := await self.next())["type"] != kind:
            pass
        return message

    async def rest(self) -> list[dict[str, Any]]:
        """Return all messages until the end."""
        messages = []
        with suppress(ConnectionClosed):
            while True:
                messages.append(await self.next())
        return messages

    async def code(self) -> int:
        """Return the close code, sent by the server."""
        await asyncio.wait_for(self.socket.wait_closed(), 30)
        code = self.socket.close_code
        assert code is not None
        return code


class Place:
    """Address of an edge."""

    def __init__(self, house: House, port: int, door: Connections, server: uvicorn.Server) -> None:
        self.house = house
        self.port = port
        self.door = door
        self.server = server

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def raw(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a socket by a handshake of our own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(handshake(path, self.port))
        await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def answer(self, request: bytes, until: bytes = b"\r\n\r\n") -> bytes:
        """Return the beginning of the answer to a handshake of our own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        answer = await asyncio.wait_for(reader.readuntil(until), 30)
        writer.close()
        return answer

    def line(
        self, path: str, protocols: tuple[str, ...] = (PROTOCOL,), **headers: str
    ) -> AbstractAsyncContextManager[Line]:
        return line_at(self.url, path, protocols, **headers)

    @asynccontextmanager
    async def greeted(self, path: str, **headers: str) -> AsyncIterator[Line]:
        """Open a socket, and read its greeting."""
        async with self.line(path, (PROTOCOL,), **headers) as line:
            assert (await line.next())["type"] == "hello"
            yield line


@asynccontextmanager
async def line_at(url: str, path: str, protocols: tuple[str, ...] = (PROTOCOL,), **headers: str) -> AsyncIterator[Line]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with connect(
        url + path,
        subprotocols=protocols or None,  # type: ignore[arg-type]
        additional_headers=sent,
        proxy=None,
        max_size=None,
        open_timeout=60,
    ) as socket:
        assert socket.response is not None
        hold_answer("GET", path, 101, socket.response.headers, None)
        yield Line(socket)


class Server(uvicorn.Server):
    """Begins to stop within milliseconds: uvicorn looks ten times a second."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 (uvicorn sets a flag)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def listening(app: Any, limits: ConnectionLimits = LIMITS) -> AsyncIterator[tuple[uvicorn.Server, Connections]]:
    """Serve an application as the service does."""
    door = Connections(limits)
    config = uvicorn.Config(
        app,
        port=0,
        loop="none",
        http=functools.partial(ClientConnection, door=door),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
    )
    server = Server(config)
    serving = asyncio.create_task(server._serve())
    watching = asyncio.create_task(door.watch())
    await until(lambda: server.started)
    try:
        yield server, door
    finally:
        watching.cancel()
        server.should_exit = True
        await serving


@asynccontextmanager
async def place(house: House, limits: ConnectionLimits = LIMITS) -> AsyncIterator[Place]:
    async with listening(house.app, limits) as (server, door):
        yield Place(house, server.servers[0].sockets[0].getsockname()[1], door, server)
    await house.app.state.forwarder.close()


def path_of(session: str, query: str = "") -> str:
    return f"/audio_sessions/{session}/socket{query}"


async def opened(house: House, project: str = "project", content_type: str = RAW) -> str:
    """Return a new stream session."""
    session = new_id()
    await house.sessions.submit(session, Opened("o", "stream", content_type, project, 1000, 500))
    return session


@asynccontextmanager
async def greeted(house: House, query: str = "") -> AsyncIterator[tuple[str, Line]]:
    """Open a socket of a new session, and read its greeting."""
    session = await opened(house)
    async with place(house) as here, here.greeted(path_of(session, query)) as line:
        yield session, line


@asynccontextmanager
async def forwarded(house: House) -> AsyncIterator[tuple[House, Place, Place, str]]:
    """Yield the owner of a session, its address, that of another node, and the session."""
    owner = House()
    session = await opened(owner)
    async with place(owner) as there, place(house) as here:
        house.sessions.elsewhere[session] = there.url.replace("ws", "http")
        yield owner, there, here, session


def of_type(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


async def refused(line: Line, code: int, status: int) -> dict[str, Any]:
    """Return the error that ends a socket."""
    messages = await line.rest()
    assert await line.code() == code
    error = messages[-1]
    assert (error["type"], error["status_code"]) == ("error", status)
    assert error["error"]
    return error


async def refused_either_way(here: Place, path: str, code: int, status: int, **headers: str) -> tuple[str, str]:
    """Return the errors that refuse a socket with the protocol and without it."""
    async with here.line(path, (PROTOCOL,), **headers) as line:
        error = (await refused(line, code, status))["error"]
    with pytest.raises(InvalidStatus) as failure:
        async with here.line(path, protocols=(), **headers):
            pass
    assert failure.value.response.status_code == status
    return error, json.loads(failure.value.response.body)["error"]


def handshake(path: str, port: int, *headers: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        *(f"{name}: {value}" for name, value in UPGRADE.items()),
        "Sec-WebSocket-Protocol: earshot.v1",
        *headers,
    ]
    return "\r\n".join((*lines, "", "")).encode()
