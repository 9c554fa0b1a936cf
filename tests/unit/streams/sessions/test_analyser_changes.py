"""The analyser while sessions end, are deleted or move to another node, and while models change."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from streams.log import StoredRecord
from streams.models.protocol import Floats, SoundEngine
from streams.sessions import analyser as module
from streams.sessions import warm
from streams.sessions.step import SessionStep
from streams.sessions.store import SessionStore
from tests.unit.streams.audio.engines import Fingerprint, fingerprint
from tests.unit.streams.sessions.engines import Gated
from tests.unit.streams.sessions.studio import STREAM, Studio, pieces, playing, sound, truth
from tests.waiting import until
from topics.catalog import TopicPartition
from topics.errors import EngineError, NotOwned, Unavailable
from topics.sessions.records import Chunk, Deleted, Opened, Sealed

ONE, TWO = "A" * 24, "B" * 24


@asynccontextmanager
async def at_work(tmp_path: Path) -> AsyncIterator[tuple[Studio, Gated]]:
    """Run a studio that is at the first step of many of a session, and ends it after the body."""
    engine = Gated()
    async with playing(tmp_path, engine, workers=1) as studio:
        await studio.send(ONE, STREAM, *(Chunk("c", n, chunk) for n, chunk in enumerate(pieces(sound(30)))))
        await asyncio.to_thread(engine.begun.wait, 10)
        yield studio, engine
        engine.gate.set()


async def test_deleted_session_is_not_analysed_further(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (studio, engine):
        await studio.send(ONE, Deleted("c"))
    # The current step ends; its windows are dropped, and later chunks are never read.
    assert engine.asked < 20
    assert studio.store.head(ONE) is None
    assert studio.scores(ONE) == b""
    assert studio.failures(ONE) == []


async def test_session_of_revoked_partition_frees_its_lane(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (studio, _):
        studio.analyser.forget(ONE)
        studio.refusals = [Unavailable("the partition has no ready owner here")] * 1000
    assert len(studio.refusals) == 999


async def test_session_deleted_during_step_is_forgotten_by_worker(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (studio, engine):
        studio.analyser.forget(ONE)
        engine.gate.set()
        await studio.settle()
        (process,) = studio.workers.processes()
        assert (process.sessions, len(process.forgotten)) == (set(), 1)
        await studio.send(TWO, msgspec.structs.replace(STREAM, project="other"), Chunk("c", 0, sound(1)))
        await studio.settle()
        assert process.forgotten == []
    assert studio.scores(TWO) == truth(sound(1))


async def test_session_of_lost_partition_is_not_retried(tmp_path: Path) -> None:
    data = sound(1)
    async with playing(tmp_path) as studio:

        def elsewhere(session: str) -> SessionStore:
            raise NotOwned("partition 0 is not owned here")

        here, studio.analyser.steps.store_of = studio.analyser.steps.store_of, elsewhere
        await studio.send(ONE, STREAM, Chunk("c", 0, data), Sealed("c"))
        await until(lambda: not studio.analyser.sessions() and not len(studio.analyser.ready))
        studio.analyser.steps.store_of = here
        studio.analyser.enqueue(ONE)
    assert studio.scores(ONE) == truth(data)


async def test_audio_released_after_head_was_read_fails_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends before its last result is folded, so the next step begins at an old place."""
    data, late = sound(6), list[tuple[Any, ...]]()

    def put(*windows: Any) -> None:
        late.append(windows)
        windows[2](None)

    async with playing(tmp_path) as studio:
        stretch = studio.commands.stretch

        async def fold_first(tp: TopicPartition, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
            while late:
                session, new, _ = late.pop(0)
                studio.put(session, new, lambda error: None)
                held = studio.store.references.held
                values = enumerate(studio.commands.values)
                studio.commands.values = [value if held(offset) else None for offset, value in values]
            return await stretch(tp, offsets, size)

        monkeypatch.setattr(studio.commands, "stretch", fold_first)
        with mock.patch.object(studio.writer, "put", put):
            await studio.send(ONE, STREAM)
            await studio.upload(ONE, pieces(data)[:6])
            await studio.settle()
        active = studio.analyser.warm.get(ONE)
        assert active is not None
        studio.analyser.warm.close(active)
        await studio.upload(ONE, pieces(data)[6:], 6)
        await studio.send(ONE, Sealed("c"))
    assert studio.failures(ONE) == []
    assert studio.scores(ONE) == truth(data)


async def test_session_has_one_actor_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was forgotten and returned is queued twice; the later work waits for its actor."""
    running: list[str] = []
    met: list[str] = []
    gates = {session: asyncio.Event() for session in (ONE, TWO)}

    async def chunks_of(sessions: list[str]) -> list[SessionStep]:
        [session] = sessions
        met.append(session)
        assert session not in running
        running.append(session)
        await gates[session].wait()
        running.remove(session)
        studio.analyser.ready.done(session, None)
        return []

    studio = Studio(Fingerprint(), tmp_path)
    monkeypatch.setattr(studio.analyser, "chunks_of", chunks_of)
    studio.analyser.enqueue(TWO)
    studio.analyser.enqueue(ONE)
    studio.analyser.forget(ONE)
    studio.analyser.enqueue(ONE)
    async with studio:
        await until(lambda: running == [TWO, ONE])
        studio.analyser.enqueue(ONE)
        gates[TWO].set()
        await until(lambda: running == [ONE])
        gates[ONE].set()
        await studio.settle()
        assert studio.ended == []
    assert met == [TWO, ONE, ONE]


async def test_ended_session_is_not_analysed_again(tmp_path: Path) -> None:
    engine = Fingerprint()
    async with playing(tmp_path, engine) as studio:
        await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)), Sealed("c"))
        await studio.settle()
        emitted, asked = len(studio.written), engine.asked
        studio.analyser.enqueue(ONE)
        await studio.settle()
        assert (len(studio.written), engine.asked) == (emitted, asked)


@pytest.mark.parametrize(("bound", "pause"), [("IDLE_SESSIONS", 0.0), ("MAX_SESSIONS", 0.0), ("IDLE_SESSIONS", 600.0)])
async def test_warm_session_state_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, pause: float
) -> None:
    """But streams that pause keep their place, or each would read its last chunks from the log again, each time."""
    monkeypatch.setattr(warm, bound, 2)
    monkeypatch.setattr(warm, "PAUSE_SECONDS", pause)
    monkeypatch.setattr(module, "TIDY_SECONDS", 0.001)
    sessions = [letter * 24 for letter in "ABCDE"]
    async with playing(tmp_path, cache_bytes=10**9) as studio:
        for session in sessions:
            await studio.send(session, STREAM)
        for number in range(2):
            for seed, session in enumerate(sessions):
                await studio.send(session, Chunk("c", number, pieces(sound(2, seed), 1)[number]))
                await studio.settle()
        await until(lambda: pause or len(studio.analyser.sessions()) <= 2)
    assert (studio.commands.read > 0) == (pause == 0.0)
    for seed, session in enumerate(sessions):
        scores = studio.scores(session)
        assert len(scores) == 3 * 8
        assert scores == truth(sound(2, seed))[: len(scores)]


async def test_lag_is_age_of_oldest_work(tmp_path: Path) -> None:
    studio = Studio(Fingerprint(), tmp_path)
    assert studio.analyser.ready.lag() == 0.0
    studio.analyser.enqueue(ONE)
    await until(lambda: studio.analyser.ready.lag() > 0.01)
    assert studio.analyser.ready.lag() < 60


# --- models ---------------------------------------------------------------------------------------------------------


class Other(Fingerprint):
    """A model with other scores."""

    def __init__(self) -> None:
        super().__init__(name="other")

    def scores(self, patch: Floats) -> Floats:
        return 1 - fingerprint(patch)


def opened(kind: Opened, engine: SoundEngine) -> Opened:
    return msgspec.structs.replace(kind, model=engine.manifest.model_id)


def models_of(studio: Studio, session: str) -> set[str]:
    return {new.model for of, new in studio.written if of == session}


async def test_session_waits_for_missing_model(tmp_path: Path) -> None:
    second = Other()
    audio = sound(2)
    async with playing(tmp_path, Fingerprint()) as studio:
        await studio.send(ONE, opened(STREAM, second))
        await studio.upload(ONE, pieces(audio))
        await studio.send(ONE, Sealed("c"))
        await studio.send(TWO, STREAM)
        await studio.upload(TWO, pieces(audio))
        await until(lambda: studio.written)
        assert models_of(studio, ONE) == set()
        assert studio.failures(ONE) == []
        studio.models.use(second)
    assert studio.scores(ONE) == truth(audio, second)
    assert studio.scores(TWO) == truth(audio)


async def test_failed_model_load_is_retried(tmp_path: Path) -> None:
    seen: list[str] = []
    async with playing(tmp_path) as studio:

        def refuse(model: str) -> SoundEngine:
            seen.append(model)
            raise EngineError("damaged")

        studio.models._load = refuse
        await studio.send(ONE, msgspec.structs.replace(STREAM, model="gone@1-2"))
        await studio.upload(ONE, pieces(sound(1)))
        await until(lambda: len(seen) >= 2)
        studio.analyser.forget(ONE)
    assert set(seen) == {"gone@1-2"}
    assert studio.written == []
