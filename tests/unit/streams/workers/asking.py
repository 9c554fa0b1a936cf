"""Test sessions and segments, and a model that records whose audio it has scored."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np

from streams.audio.levels import SoundMeter
from streams.models.protocol import Floats
from streams.workers.messages import Beginning, ScoredWindows
from streams.workers.session import WorkerSession
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import Workers
from tests.unit.streams.audio.engines import SAMPLES, Fingerprint
from tests.unit.streams.sessions.engines import Gated
from tests.unit.streams.sessions.studio import RATE, RAW
from topics import media
from topics.geometry import SESSIONS
from topics.sessions.records import Cursor


def beginning(engine: Fingerprint, declared: str = RAW) -> Beginning:
    geometry = SESSIONS.window_ms, SESSIONS.hop_ms
    return Beginning(engine.manifest.model_id, *geometry, media.parse(declared), Cursor(), 0)


def session(workers: Workers, engine: Fingerprint, project: str = "p", owned: bool = False) -> WorkerSession:
    return WorkerSession(workers, project, beginning(engine), owned)


def of_file(workers: Workers, engine: Fingerprint, path: Path, project: str = "p") -> tuple[WorkerSession, WorkerSlot]:
    """Return a session whose audio is a file, and the slot that has the file."""
    slot = workers.open_slot(path.open("rb"), project)
    begin = msgspec.structs.replace(beginning(engine), file=True)
    return WorkerSession(workers, project, begin, False, slot), slot


async def take(
    analysed: WorkerSession, *chunks: bytes, seconds: float = 1.0, meter: SoundMeter | None = None, **flags: bool
) -> ScoredWindows:
    """Have the next chunks analysed, and return their windows."""
    return analysed.absorb(await analysed.ask(chunks, seconds, meter, **flags))


def asked(
    analysed: WorkerSession, *chunks: bytes, seconds: float = 1.0, alone: bool = False
) -> asyncio.Task[ScoredWindows]:
    """Begin `take`."""
    return asyncio.create_task(take(analysed, *chunks, seconds=seconds, alone=alone))


class Ordered(Gated):
    """Takes samples, and records their owner, encoded as their level."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest = Fingerprint(SAMPLES).manifest
        self.order: list[int] = []

    def scores(self, patch: Floats) -> Floats:
        scores = super().scores(patch)
        self.order.append(round(float(patch.max()) * 64))
        return scores


def level(number: int, seconds: float = 1) -> bytes:
    return np.full(int(RATE * seconds), 512 * number, np.int16).tobytes()
