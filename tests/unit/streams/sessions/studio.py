"""Intake, analyser and writer around one in-memory partition: uploads return as windows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from streams.agents import NodeApp, analyse_sessions
from streams.alarms.watcher import Watcher
from streams.audio.analysis import Analysis
from streams.folding.awaited_verdicts import Verdicts
from streams.folding.fold import Changes
from streams.log import StoredRecord
from streams.models.loaded_models import LoadedModels
from streams.models.protocol import SoundEngine
from streams.sessions.analyser import Analyser
from streams.sessions.audio import AudioCache
from streams.sessions.intake import SessionIntake
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from streams.workers.process import DEADLINES
from streams.workers.workers import Workers
from tests.unit.streams.agents import Agents
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.rows import MemoryPartition, delivered, fold
from tests.unit.streams.workers import double
from tests.waiting import until
from topics.alarms.alarms import Alarm
from topics.alarms.rules import StoredRule
from topics.catalog import TopicPartition
from topics.errors import Unavailable
from topics.geometry import SESSIONS
from topics.sessions.records import Chunk, Failed, NewWindows, Opened, SessionCommand
from topics.sessions.rules import SessionHead

RATE = 16_000
RAW = f"audio/x-raw; rate={RATE}; format=s16"
STREAM = Opened("c", "stream", RAW, "p", SESSIONS.window_ms, SESSIONS.hop_ms)
FILE = Opened("c", "file", RAW, "p", SESSIONS.window_ms, SESSIONS.hop_ms)


def sound(seconds: float, seed: int = 0) -> bytes:
    """Return noise as raw PCM, s16."""
    return np.random.default_rng(seed).integers(-9000, 9000, int(seconds * RATE), np.int16).tobytes()


def pieces(data: bytes, seconds: float = 0.5) -> list[bytes]:
    size = int(seconds * RATE) * 2
    return [data[start : start + size] for start in range(0, len(data), size)]


def truth(data: bytes, engine: SoundEngine | None = None) -> bytes:
    """Return the packed scores of a recording, computed at once."""
    samples = np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
    analysis = Analysis(engine or Fingerprint(), SESSIONS, RATE)
    return analysis.feed(samples) + analysis.finish()


class Commands:
    """The command topic; raises given errors, once each, before it reads."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.faults: list[Exception] = []
        #: Records per read, as from Kafka; 0: the requested ones, as from the embedded log.
        self.together = 0
        #: Number of records read, and of reads.
        self.read = self.reads = 0

    async def stretch(self, tp: TopicPartition, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        if self.faults:
            raise self.faults.pop(0)
        first = offsets[0]
        found = range(first, min(first + self.together, len(self.values))) if self.together else offsets
        self.read += len(found)
        self.reads += 1
        return [StoredRecord(at, 0, None, self.values[at]) for at in found if at < len(self.values)]


class Studio:
    """One partition with all folds and analysis; created and used inside a running loop."""

    def __init__(self, engine: SoundEngine, spool: Path, workers: int = 2, cache_bytes: int = 0) -> None:
        self.models = LoadedModels(engine)
        self.spool = spool
        self.threads = double.of_models(self.models)
        #: Tests of processes replace this with a function that starts them, and restart.
        self.fork = self.threads.fork
        self.deadlines = DEADLINES
        self.count = workers
        self.partition = MemoryPartition()
        self.commands = Commands()
        self.audio = AudioCache(cache_bytes, self.commands)
        self.partition.is_prompt = True
        self.written: list[tuple[str, NewWindows]] = []
        self.failed: list[tuple[str, Failed]] = []
        self.refusals: list[Exception] = []
        #: Rules of alarms, and the alarms they made.
        self.rules: Sequence[StoredRule] = ()
        self.alarms: list[Alarm] = []
        #: How many records of failures the log still refuses.
        self.failures_refused = 0
        self.restart()

    def restart(self) -> None:
        """Drop everything that a process holds in memory."""
        self.store = SessionStore(self.partition)
        self.intake = SessionIntake(Verdicts(), 1000, self._announce, self.audio)
        watcher = Watcher(self, self.models, self.alarms.extend)
        self.writer = WindowWriter(lambda session: self.store, self.intake, lambda store: True, watcher=watcher)
        self.put, self.writer.put = self.writer.put, self._put  # type: ignore[method-assign]
        self.workers = Workers(self.count, self.fork, self.deadlines)
        self.app = NodeApp()
        self.analyser = Analyser(
            self.app,
            self.models,
            self.audio,
            lambda session: self.store,
            self.writer,
            self._fail,
            self.workers,
            self.spool,
        )
        analyse_sessions(self.app, self.analyser)
        self.agents = Agents(self.app, self.workers, self.analyser)

    def of(self, project: str) -> Sequence[StoredRule]:
        return self.rules

    @property
    def ended(self) -> list[BaseException]:
        """Exceptions of steps, which would end the node."""
        return self.agents.crashes

    async def start(self) -> None:
        await self.agents.start()

    async def stop(self) -> None:
        await self.agents.__aexit__()

    async def __aenter__(self) -> Studio:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def send(self, session: str, *commands: SessionCommand) -> None:
        """Append and fold commands of a session."""
        records = []
        for command in commands:
            record = delivered(len(self.commands.values), session, command)
            self.commands.values.append(record.value)
            records.append(record)
        await fold(self.store, records, self.intake, self._park)

    async def upload(self, session: str, chunks: Sequence[bytes], first: int = 0) -> None:
        for number, data in enumerate(chunks, first):
            await self.send(session, Chunk("c", number, data))

    async def settle(self) -> None:
        await until(lambda: not len(self.analyser.ready))

    def head(self, session: str) -> SessionHead:
        head = self.store.head(session)
        assert head is not None
        return head

    def scores(self, session: str) -> bytes:
        return b"".join(block.scores for block in self.store.blocks(session, 0, 1000))

    def failures(self, session: str) -> list[str]:
        return [failed.error for of, failed in self.failed if of == session]

    def _announce(self, changes: Changes) -> None:
        for session in changes.gone:
            self.analyser.forget(session)
        for session in changes.work:
            self.analyser.enqueue(session)

    def _put(self, session: str, new: NewWindows, shown: Callable[[Exception | None], None]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        assert len(new.scores) % TAGS == 0
        self.written.append((session, new))
        self.put(session, new, shown)

    async def _fail(self, session: str, error: str) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        if self.failures_refused:
            self.failures_refused -= 1
            raise Unavailable("the broker is away")
        failed = Failed("analysis", error, self.head(session).windows)
        self.failed.append((session, failed))
        await self.send(session, failed)

    async def _park(self, partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        raise AssertionError(f"record {record.offset} was parked: {cause}")


@asynccontextmanager
async def playing(tmp_path: Path, engine: Fingerprint | None = None, **options: int) -> AsyncIterator[Studio]:
    """Run a studio until all analysis is done; no actor may end before it is stopped."""
    async with Studio(engine or Fingerprint(), tmp_path, **options) as studio:
        yield studio
        await studio.settle()
    assert studio.ended == []
