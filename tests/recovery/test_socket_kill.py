"""Chunks acknowledged by sockets appear once and in order, and so do events, across kills and cut connections.

Each client follows the protocol: it keeps a chunk until it is acknowledged, reconnects after its last cursor, and sends
from `next_chunk`.
"""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, half_second, kill_on_the_way
from tests.recovery.truth import ZEROS, expected_events, faults
from tests.unit.app.sessions.sockets import END, Line, line_at

SOCKETS = 16
#: Chunks of each; the service is killed about every hundred acknowledged chunks.
EACH = -(-length("SOCKET_CHUNKS", 320) // SOCKETS)
CHUNKS = SOCKETS * EACH
KILLS = max(1, CHUNKS // 100)
#: Chunks between two cuts of a client's connection.
CUT = 25

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CHUNKS)]


class SocketClient:
    """One session over any number of connections."""

    def __init__(self, service: ServiceProcess, session: str, seed: int) -> None:
        self.service = service
        self.stream = Stream(session)
        self.chunks = [half_second(seed, number) for number in range(EACH)]
        self.chance = random.Random(seed)
        self.acknowledged = 0
        self.connections = 0
        self.cursor = "start"
        self.events: list[dict[str, Any]] = []
        self.over = False

    async def run(self) -> Stream:
        """Send all chunks, and read to the end."""
        async with asyncio.timeout(300 + CHUNKS):
            while not self.over:
                with suppress(ConnectionClosed, InvalidHandshake, OSError, TimeoutError):
                    await self._connect()
                await asyncio.sleep(0.05)
        self.stream.chunks = self.chunks
        return self.stream

    async def _connect(self) -> None:
        url = self.service.url.replace("http", "ws", 1)
        path = f"/audio_sessions/{self.stream.session}/socket?after={self.cursor}"
        async with line_at(url, path) as line:
            hello = await line.next()
            if hello["type"] != "hello":
                return
            self.connections += 1
            assert hello["next_chunk"] >= self.acknowledged, "an acknowledged chunk is gone"
            reading = asyncio.create_task(self._read(line))
            try:
                for number in range(hello["next_chunk"], EACH):
                    await line.socket.send(self.chunks[number])
                    await asyncio.sleep(self.chance.uniform(0, 0.1))
                    if self.chance.random() < 1 / CUT:
                        line.socket.transport.abort()
                        return
                await line.socket.send(END)
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, line: Line) -> None:
        while True:
            message = await line.next()
            if message["type"] == "ack":
                self.acknowledged = max(self.acknowledged, message["next_chunk"])
            elif message["type"] == "window":
                self.events.append(message)
                self.cursor = message["cursor"]
            elif message["type"] == "end":
                self.over = True
                return


async def test_socket_chunks_survive_kill_9(victim: ServiceProcess) -> None:
    print(f"seed {SEED}, {CHUNKS} chunks, {SOCKETS} sockets, {KILLS} kills")
    async with Client(victim) as opener:
        sessions = [(await opener.open()).session for _ in range(SOCKETS)]
    clients = [SocketClient(victim, session, SEED + number) for number, session in enumerate(sessions)]
    work = asyncio.gather(*(client.run() for client in clients))

    def progress() -> int:
        return sum(client.acknowledged for client in clients)

    await kill_on_the_way(victim, work, progress, CHUNKS, KILLS, random.Random(SEED))
    await work
    again = sum(client.connections for client in clients) - SOCKETS
    print(f"{again} connections after breaks")
    assert again > 0, "each kill and each cut meets sockets"
    truth = [expected_events(client.chunks) for client in clients]
    names = ("start_time", "end_time", "tags")
    heard = [[{name: event[name] for name in names} for event in client.events] for client in clients]
    assert faults(heard, truth) == ZEROS
    async with Client(victim) as reader:
        assert faults([await reader.events(client.stream.session) for client in clients], truth) == ZEROS
