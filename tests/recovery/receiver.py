"""A receiver of webhooks that fails one time in three, and dies as the test says."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from email.parser import BytesParser
from typing import Any, Final

from standardwebhooks.webhooks import Webhook

from tests.ports import free_port

#: Failures in a row of one alarm: with ten attempts and luck that is bad enough, more would be its last.
MOST_FAILURES: Final = 4


class Receiver:
    """Answers 204, 500 or nothing; what it has received survives its deaths."""

    def __init__(self, seed: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/alarms"
        self.secret = ""
        #: By id: the body, and how many attempts were answered 204 and failed.
        self.bodies: dict[str, bytes] = {}
        self.taken: dict[str, int] = defaultdict(int)
        self.failed: dict[str, int] = defaultdict(int)
        self._chance = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_address=True)

    def kill(self) -> None:
        """Close the port, and break all connections."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Receiver:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.kill()

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """What was received, each alarm once."""
        return [json.loads(body)["data"] for body in self.bodies.values()]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                headers = BytesParser().parsebytes(head.partition(b"\r\n")[2])
                body = await reader.readexactly(int(headers["content-length"]))
                status = self._take(dict(headers.items()), body)
                if status is None:
                    return
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _take(self, headers: dict[str, str], body: bytes) -> int | None:
        Webhook(self.secret).verify(body, headers)
        id = headers["webhook-id"]
        assert self.bodies.setdefault(id, body) == body, "each attempt has the same body"
        if self.failed[id] < MOST_FAILURES and self._chance.random() < 1 / 3:
            self.failed[id] += 1
            return self._chance.choice((500, None))
        self.taken[id] += 1
        return 204
