"""A service of live sockets for tests of clients: it keeps the chunks of each session, and can be away."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.ports import free_port

PROTOCOL: Final = Subprotocol("earshot.v1")
FRAME_BYTES: Final = 1024 * 1024


@dataclass
class Stored:
    """A session: its name, its chunks, and the text messages that came, each before the chunk with its number."""

    name: str
    labels: dict[str, str]
    chunks: list[bytes] = field(default_factory=list)
    told: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    connection: ServerConnection | None = None

    @property
    def notes(self) -> int:
        return sum(told["type"] == "source" for _, told in self.told)

    def ack(self) -> dict[str, Any]:
        return {"type": "ack", "next_chunk": len(self.chunks), "behind": 0.0, "notes": self.notes}

    @property
    def pcm(self) -> bytes:
        return b"".join(self.chunks)


class Sink:
    """Listens on a port of 127.0.0.1, in a thread."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.sessions: dict[str, Stored] = {}
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(60)

    def stop(self) -> None:
        """End all connections at once, and refuse new ones."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def of(self, name: str) -> list[Stored]:
        """Return the sessions of a source, the oldest first."""
        return [one for one in self.sessions.values() if one.name == name]

    async def _serve(self) -> None:
        self._server = await serve(
            self._converse, "127.0.0.1", self.port, subprotocols=[PROTOCOL], compression=None, max_size=FRAME_BYTES
        )

    async def _end(self) -> None:
        if self._server is not None:
            for connection in self._server.connections:
                connection.transport.abort()
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _converse(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        url = urlsplit(connection.request.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/api/v1/socket":
            session_id = f"session{next(self._numbers)}"
            self.sessions[session_id] = Stored(query["file_name"], json.loads(query.get("metadata", "{}")))
        else:
            session_id = url.path.split("/")[2]
        stored = self.sessions[session_id]
        if stored.connection is not None:
            stored.connection.transport.abort()
            await asyncio.sleep(0)
        stored.connection = connection
        hello = {
            "type": "hello",
            "session_id": session_id,
            "next_chunk": len(stored.chunks),
            "cursor": "0.0.a",
            "state": "writable",
            "content_type": query.get("content_type", "audio/x-raw; rate=16000; format=s16le"),
            "notes": stored.notes,
            "limits": {"frame_bytes": FRAME_BYTES},
        }
        try:
            await connection.send(json.dumps(hello))
            async for message in connection:
                if stored.connection is not connection:
                    return
                if isinstance(message, bytes):
                    stored.chunks.append(message)
                    await connection.send(json.dumps(stored.ack()))
                    continue
                told = json.loads(message)
                if told["type"] == "end":
                    await connection.send(json.dumps({"type": "end", "cursor": "1.0.a"}))
                    return
                stored.told.append((len(stored.chunks), told))
                if told["type"] == "source":
                    await connection.send(json.dumps(stored.ack()))
        except ConnectionClosed:
            return


@contextmanager
def sink() -> Iterator[Sink]:
    """Run a service of sockets."""
    made = Sink()
    made.start()
    try:
        yield made
    finally:
        made.close()
