"""Sessions that open, stream, end and are deleted all the time, and a record of each."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream

CLIENTS = 16
#: A paused node accepts connections but does not answer.
PATIENCE_SECONDS = 6.0
GIVE_UP_SECONDS = 120.0


@dataclass
class Ended:
    """Finished sessions: sealed and kept, or deleted."""

    kept: list[tuple[str, Stream]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def __add__(self, other: Ended) -> Ended:
        return Ended(self.kept + other.kept, self.deleted + other.deleted)


class Load:
    """Clients that run until stopped; each tries the next node if one does not answer."""

    def __init__(self, nodes: list[ServiceProcess], seed: int) -> None:
        self._nodes = nodes
        self._seed = seed
        self._stopping = asyncio.Event()
        self._ended = Ended()
        #: Number of sessions each client has ended.
        self._turns = [0] * CLIENTS
        #: Forbidden answers; the client then gives up the session.
        self.refused: list[str] = []
        self._work: asyncio.Future[list[None]] | None = None

    def start(self) -> None:
        self._work = asyncio.gather(*(self._client(number) for number in range(CLIENTS)))

    async def stop(self) -> None:
        assert self._work is not None
        self._stopping.set()
        await self._work

    async def turn(self) -> None:
        """Wait until each client has ended its current session."""
        before = list(self._turns)
        async with asyncio.timeout(GIVE_UP_SECONDS):
            while not all(now > then for now, then in zip(self._turns, before, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    def client(self) -> Client:
        return Client(*self._nodes, give_up=GIVE_UP_SECONDS, patience=PATIENCE_SECONDS)

    def take(self) -> Ended:
        """Return the sessions that ended since the last call."""
        ended, self._ended = self._ended, Ended()
        return ended

    async def _client(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        async with self.client() as client:
            while not self._stopping.is_set():
                try:
                    await self.session(client, chance)
                except AssertionError as wrong:
                    self.refused.append(str(wrong).splitlines()[0])
                self._turns[number] += 1

    async def session(self, client: Client, chance: random.Random) -> None:
        # A node opens sessions in its own partitions, and each node needs some.
        client.first = chance.randrange(len(self._nodes)) - client.repeats
        kind = "file" if chance.random() < 0.2 else "stream"
        stream, seed = await client.open(kind), chance.randrange(2**32)
        for _ in range(chance.randint(3, 12)):
            await client.put(stream, seed)
            await asyncio.sleep(chance.uniform(0, 0.3))
        fate = chance.random()
        if fate > 0.15:
            await client.seal(stream)
        if fate > 0.4:
            self._ended.kept.append((kind, stream))
        else:
            await client.delete(stream.session)
            self._ended.deleted.append(stream.session)
