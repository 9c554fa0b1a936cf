"""Workers that die: pending work is analysed again, and only a session that kills three in a row is ended."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from streams.audio.decode import BLOCK_SAMPLES
from streams.models.protocol import Floats
from streams.processes.deaths import DEADLY, DEATHS
from streams.sessions import step as module
from streams.workers.messages import Answer, ScoredWindows
from streams.workers.session import WorkerSession
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.engines import Faulty
from tests.unit.streams.sessions.studio import FILE, STREAM, Studio, pieces, playing, sound, truth
from tests.unit.streams.workers.double import Death
from tests.waiting import until
from topics.errors import Unavailable
from topics.media import MIN_RATE
from topics.sessions.records import Chunk, Cursor, NewWindows, Sealed

ONE, TWO = "A" * 24, "B" * 24
#: Every sample is the same, and none is 0: no model hears digital silence.
POISON = bytes([0, 4]) * 16_000


class Mortal(Fingerprint):
    """Dies on poison."""

    def scores(self, patch: Floats) -> Floats:
        if (patch == patch[0]).all():
            raise Death
        return super().scores(patch)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.workers.workers.PAUSES", (0.0, 0.01))


async def test_suspects_are_retried_alone_after_death(tmp_path: Path) -> None:
    """Many steps were in the worker that died; after that each runs alone in a worker."""
    audio = {f"{number:024}": sound(1, number) for number in range(6)} | {ONE: POISON}
    audio |= {f"{number:024}": sound(1, number) for number in range(6, 12)}
    gate = threading.Event()

    class Guarded(Mortal):
        """Begins after many requests have arrived."""

        def scores_of(self, patches: Sequence[Floats]) -> Sequence[Floats]:
            assert gate.wait(60)
            return super().scores_of(patches)

    studio = Studio(Guarded(), tmp_path, workers=1)
    with capture_logs() as lines:
        async with studio:
            for session, data in audio.items():
                await studio.send(session, STREAM, Chunk("c", 0, data))
            await until(lambda: studio.workers.processes() and len(studio.workers.processes()[0]) > 1)
            gate.set()
            await studio.settle()
    assert studio.ended == []
    assert {session: studio.failures(session) for session in audio} == {session: [] for session in audio} | {
        ONE: [DEADLY]
    }
    assert (studio.head(ONE).error, studio.scores(ONE), studio.workers.deaths) == (DEADLY, b"", DEATHS)
    assert all(studio.scores(session) == truth(data) for session, data in audio.items() if session != ONE)
    together = [line["in_work"] for line in lines if line["event"] == "workers.died"]
    assert together[0] > 1
    assert together[1:] == [1] * (DEATHS - 1)


async def test_file_with_late_poison_is_ended(tmp_path: Path) -> None:
    """Steps that lead there again do not count as success."""
    data = sound(100)
    async with playing(tmp_path, Mortal(), workers=1) as studio:
        await studio.send(ONE, FILE, *(Chunk("c", n, chunk) for n, chunk in enumerate([*pieces(data, 20), POISON])))
        await studio.send(ONE, Sealed("c"))
    assert studio.failures(ONE) == [DEADLY]
    assert studio.workers.deaths == DEATHS
    assert studio.scores(ONE) == truth(data)[: len(studio.scores(ONE))] != b""


async def test_stream_that_rereads_chunks_before_poison_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short chunks, few per step: several steps lead to the poison."""
    monkeypatch.setattr(module, "STEP_CHUNKS", 2)
    data = sound(2)
    async with playing(tmp_path, Mortal(), workers=1) as studio:
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, [*pieces(data, 0.1), *pieces(POISON, 0.1), *pieces(POISON, 0.1)])
    assert studio.failures(ONE) == [DEADLY]
    assert studio.workers.deaths == DEATHS
    assert studio.scores(ONE) == truth(data + 2 * POISON)[: len(studio.scores(ONE))] != b""


class Dying(Fingerprint):
    """Dies on every patch at first, and on some a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[bytes, int] = {}

    def scores(self, patch: Floats) -> Floats:
        scores = super().scores(patch)
        name = scores.tobytes()
        self.seen[name] = self.seen.get(name, 0) + 1
        if self.seen[name] <= 1 + name[0] % 2:
            raise Death
        return scores


@pytest.mark.parametrize("predict", [False, True], ids=["stream", "windows"])
async def test_worker_deaths_in_every_step_leave_no_seam(tmp_path: Path, predict: bool) -> None:
    """None of these deaths is the session's fault, because it progresses each time."""
    data = sound(20, seed=5)
    async with playing(tmp_path, Dying(), workers=2) as studio:
        await studio.send(ONE, STREAM)
        for number, chunk in enumerate(pieces(data, 1 if predict else 0.5)):
            await studio.send(ONE, Chunk("c", number, chunk, predict=predict))
            await studio.settle()
    assert studio.workers.deaths >= 20
    assert studio.failures(ONE) == []
    assert studio.scores(ONE) == (b"".join(map(truth, pieces(data, 1))) if predict else truth(data))


async def test_file_resumes_at_last_window_after_worker_death(tmp_path: Path) -> None:
    data = sound(100, seed=5)
    engine = Faulty()
    async with playing(tmp_path, engine, workers=1) as studio:
        put = studio.writer.put

        def put_and_die(session: str, new: NewWindows, shown: Callable[[Exception | None], None]) -> None:
            put(session, new, shown)
            engine.faults[:] = [Death(), Death()]

        studio.writer.put = put_and_die  # type: ignore[method-assign]
        engine.faults[:] = [Death()]
        await studio.send(ONE, FILE, *(Chunk("c", n, chunk) for n, chunk in enumerate(pieces(data, 20))), Sealed("c"))
    assert studio.workers.deaths >= 5
    assert studio.failures(ONE) == []
    assert studio.scores(ONE) == truth(data)


async def test_worker_death_is_not_counted_for_idle_session(tmp_path: Path) -> None:
    """Its state was lost with the worker; it restarts from the rows."""
    data = sound(6)
    async with playing(tmp_path, workers=1) as studio:
        await studio.send(ONE, STREAM)
        for number, chunk in enumerate(pieces(data, 1)):
            await studio.send(ONE, Chunk("c", number, chunk))
            await studio.settle()
            studio.threads.kill(-1)
            await until(lambda: studio.workers.deaths == number + 1)  # noqa: B023
            active = studio.analyser.warm.get(ONE)
            assert active is not None
            assert not active.deaths
        await studio.send(ONE, Sealed("c"))
    assert studio.scores(ONE) == truth(data)
    assert studio.failures(ONE) == []


async def test_step_with_most_windows_is_accepted(tmp_path: Path) -> None:
    """Two of the longest chunks that are decoded whole, at the lowest sample rate."""
    opened = msgspec.structs.replace(STREAM, content_type=f"audio/x-raw; rate={MIN_RATE}; format=u8")
    data = np.random.default_rng(0).bytes(BLOCK_SAMPLES - 1)
    async with playing(tmp_path, workers=1, cache_bytes=4 * BLOCK_SAMPLES) as studio:
        await studio.send(ONE, opened, Chunk("c", 0, data), Chunk("c", 1, data))
    assert studio.failures(ONE) == []
    assert len(studio.failed) + len(studio.written) == 1
    assert studio.head(ONE).windows > 2 * len(data) // (MIN_RATE // 2) - 4


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(ScoredWindows(0, b"1" * (TAGS + 1), Cursor(1, 1), 1), id="half a window"),
        pytest.param(ScoredWindows(1, b"1" * TAGS, Cursor(1, 1), 1), id="a later window"),
        pytest.param(ScoredWindows(-1, b"1" * TAGS, Cursor(1, 1), 1), id="no window"),
        pytest.param(ScoredWindows(0, b"1" * TAGS * 4096, Cursor(1, 1), 1), id="too many windows"),
        pytest.param(ScoredWindows(0, b"1" * TAGS, Cursor(2, 1), 1), id="chunks that are not there"),
        pytest.param(ScoredWindows(0, b"1" * TAGS, Cursor(1, 2), 1), id="keeps what is not there"),
        pytest.param(ScoredWindows(0, b"1" * TAGS, Cursor(1, -1), 1), id="keeps what never was"),
    ],
)
async def test_invalid_worker_answer_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: ScoredWindows
) -> None:
    lies = 0
    tell = WorkerSession.absorb

    def absorb(session: WorkerSession, answer: Answer) -> ScoredWindows:
        nonlocal lies
        lies += 1
        return lie if lies <= 2 else tell(session, answer)

    monkeypatch.setattr(WorkerSession, "absorb", absorb)
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
    assert studio.scores(ONE) == truth(sound(1))
    assert studio.failures(ONE) == []


async def test_failed_worker_start_is_retried(tmp_path: Path) -> None:
    studio = Studio(Fingerprint(), tmp_path, workers=1)
    refusals = [Unavailable("no process"), OSError("no file"), Unavailable("no process")]

    def refuse(file: int | None) -> object:
        if refusals:
            raise refusals.pop()
        return studio.threads.fork()

    studio.fork = refuse  # type: ignore[assignment]
    studio.restart()
    with capture_logs() as lines:
        async with studio:
            await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
            await studio.settle()
    assert studio.scores(ONE) == truth(sound(1))
    assert [line["event"] for line in lines].count("workers.later") == 3
