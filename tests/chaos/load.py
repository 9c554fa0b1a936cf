"""Clients that stream, read and post jobs all the time, and a record of each."""

import random
from typing import Any

from tests.chaos.history import History, RecordedClient, digest
from tests.contract.api import tone, wav
from tests.fencing.load import GIVE_UP_SECONDS, PATIENCE_SECONDS, Load
from tests.process import ServiceProcess
from tests.recovery.load import Client

#: Lengths of the recordings that jobs have, and the share of turns that post one.
SECONDS = 1, 2, 3
RECORDINGS = [wav(tone(float(seconds))) for seconds in SECONDS]
SOUND = "sound_event_detection"
JOBS = 0.15


class ChaosLoad(Load):
    """As `Load`, with jobs, whose results must be those before the first fault."""

    def __init__(self, nodes: list[ServiceProcess], seed: int, history: History) -> None:
        super().__init__(nodes, seed)
        #: Accepted jobs with the number of their recording, and those of them that ended.
        self.accepted: dict[str, int] = {}
        self.completed: set[str] = set()
        self._history = history
        self._truth: list[dict[str, Any]] = []

    def client(self) -> Client:
        return RecordedClient(self._history, *self._nodes, give_up=GIVE_UP_SECONDS, patience=PATIENCE_SECONDS)

    async def prepare(self) -> None:
        """Get the truth of each recording."""
        async with self.client() as client:
            for number, recording in enumerate(RECORDINGS):
                job = await client.job(recording, {SOUND: True}, f"first-{number}")
                self._truth.append((await client.result(job))[SOUND])
                self.accepted[job] = number
                self.completed.add(job)

    async def session(self, client: Client, chance: random.Random) -> None:
        if chance.random() > JOBS:
            await super().session(client, chance)
            return
        number, key = chance.randrange(len(RECORDINGS)), f"{chance.randrange(2**64)}"
        job = await client.job(RECORDINGS[number], {SOUND: True}, key)
        self.accepted[job] = number
        result = (await client.result(job))[SOUND]
        self._history.note("job", job=job, sha256=digest(result))
        assert result == self._truth[number], f"job {job} differs: {result}"
        self.completed.add(job)
