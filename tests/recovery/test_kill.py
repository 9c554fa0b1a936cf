"""Acknowledged chunks appear once, in order, with the scores of an undisturbed run, and are billed once, across kills.

Some sessions are streamed by requests and some by sockets, whose connections are cut too. After `kill -9` the kernel's
buffers remain: this tests the death of processes, not the loss of power.
"""

import asyncio
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, half_second, kill_on_the_way
from tests.recovery.truth import ZEROS, Events, expected_events, faults
from tests.unit.app.sessions.sockets import END, Line, line_at
from tests.waiting import wait_for
from topics import keys

SESSIONS = 32
SOCKETS = 16
#: Chunks of each session; the service is killed about every hundred and fifty acknowledged chunks.
EACH = -(-length("CHUNKS", 600) // (SESSIONS + SOCKETS))
CHUNKS = (SESSIONS + SOCKETS) * EACH
KILLS = max(1, CHUNKS // 150)
#: Chunks between two cuts of a socket's connection.
CUT = 15

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CHUNKS)]


class SocketClient:
    """One session over any number of connections.

    It follows the protocol: it keeps a chunk until it is acknowledged, reconnects after its last cursor, and sends from
    `next_chunk`.
    """

    def __init__(self, service: ServiceProcess, session: str, seed: int) -> None:
        self.service = service
        self.stream = Stream(session, [half_second(seed, number) for number in range(EACH)])
        self.chance = random.Random(seed)
        self.acknowledged = 0
        self.connections = 0
        self.cursor = "start"
        self.events: Events = []
        self.over = False

    async def run(self) -> Stream:
        """Send all chunks, and read to the end."""
        async with asyncio.timeout(300 + CHUNKS):
            while not self.over:
                with suppress(ConnectionClosed, InvalidHandshake, OSError, TimeoutError):
                    await self._connect()
                await asyncio.sleep(0.05)
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
                for chunk in self.stream.chunks[hello["next_chunk"] :]:
                    await line.socket.send(chunk)
                    await asyncio.sleep(self.chance.uniform(0, 0.3))
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
                self.events.append({name: message[name] for name in ("start_time", "end_time", "tags")})
                self.cursor = message["cursor"]
            elif message["type"] == "end":
                self.over = True
                return


async def _compare(victim: ServiceProcess, streams: list[Stream], truth: list[Events]) -> dict[str, int]:
    """Compare every page of every session with the truth; the list has each once, and those of lost answers."""
    async with Client(victim) as client:
        read = [await client.events(stream.session) for stream in streams]
        listed, _ = await client.listed(5)
        assert len(set(listed)) == len(listed)
        assert {stream.session for stream in streams} <= set(listed)
        for session in listed:
            assert (await client.status(session)).status_code == 200
    return faults(read, truth)


def test_every_fault_is_counted() -> None:
    one, two, three = ({"start_time": start, "tags": []} for start in (0.0, 0.5, 1.0))
    truth = [[one, two], [one, two, three]]
    assert faults(truth, truth) == ZEROS
    assert faults([[one], truth[1]], truth) == {**ZEROS, "lost": 1, "different": 1}
    assert faults([[one, two, three], truth[1]], truth) == {**ZEROS, "invented": 1, "different": 1}
    assert faults([[one, two, two], truth[1]], truth) == {**ZEROS, "twice": 1, "different": 1}
    assert faults([truth[0], [one, three, two]], truth) == {**ZEROS, "out of order": 1, "different": 1}
    assert faults([[one, {**two, "tags": ["Siren"]}], [*truth[1]]], truth) == {**ZEROS, "different": 1}


def _usage(service: ServiceProcess) -> list[dict[str, Any]]:
    query = {"service": "audio_session", "lines": "true"}
    rows: list[dict[str, Any]] = service.operate("GET", "/usage", params=query)
    return rows


async def test_acknowledged_chunks_survive_kill_9(victim: ServiceProcess) -> None:
    """Kill at random while sessions stream; compare; compare again after deleting some, and the local tables."""
    print(f"seed {SEED}, {CHUNKS} chunks, {SESSIONS} sessions, {SOCKETS} sockets, {KILLS} kills")
    async with Client(victim) as client:
        opened = [await client.open() for _ in range(SOCKETS)]
        sockets = [SocketClient(victim, stream.session, SEED - number) for number, stream in enumerate(opened, 1)]

        def progress() -> int:
            return client.acknowledged + sum(socket.acknowledged for socket in sockets)

        work = asyncio.gather(
            *(client.stream(SEED + number, EACH) for number in range(SESSIONS)), *(socket.run() for socket in sockets)
        )
        await kill_on_the_way(victim, work, progress, CHUNKS, KILLS, random.Random(SEED))
        streams = await work
        assert client.repeats >= KILLS, "each kill meets requests"
        assert sum(socket.connections for socket in sockets) >= SOCKETS + KILLS, "each kill meets sockets"
        assert client.acknowledged == SESSIONS * EACH
        truth = [expected_events(stream.chunks) for stream in streams]
        assert faults([socket.events for socket in sockets], truth[SESSIONS:]) == ZEROS
        assert await _compare(victim, streams, truth) == ZEROS
        # Half a second after its results a session may be deleted, and the node killed.
        await asyncio.sleep(1)
        for stream in streams[::2]:
            await client.delete(stream.session)
    victim.kill()
    victim.drop_tables()
    victim.start()
    assert await _compare(victim, streams[1::2], truth[1::2]) == ZEROS
    wait_for(lambda: len(_usage(victim)) >= len(streams))
    # Each session is billed once, to the end of its last window, and so says a recount from the log.
    billed = {keys.shown(stream.session): events[-1]["end_time"] for stream, events in zip(streams, truth, strict=True)}
    assert {row["job"]: row["audio_seconds"] for row in _usage(victim)} == billed
    assert len(_usage(victim)) == len(billed)
    victim.stop()
    assert json.loads(victim.command("usage", "--recount", "--format", "json")) == []
