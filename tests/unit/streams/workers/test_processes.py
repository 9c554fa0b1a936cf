"""Workers that are processes: confined, watched, killed at any point; others take over their pending work."""

import asyncio
import errno
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import msgspec
import psutil
import pytest
from structlog.testing import capture_logs

from streams.audio import decode
from streams.audio.decode import BROKEN_LIMIT
from streams.processes import messages, zygote_process
from streams.processes.child import IDLE, Deadlines
from streams.processes.deaths import DEADLY, DEATHS
from streams.processes.zygote_process import Zygote
from streams.workers import workers as workers_module
from streams.workers.messages import memory_bytes, slot_bytes
from streams.workers.process import FIRST_COST
from streams.workers.workers import Workers
from tests.attacks.faulty_decoders import CRASH, SPIN
from tests.audio import encoded, noise
from tests.process import living
from tests.unit.streams.audio.engines import SAMPLES, Fingerprint
from tests.unit.streams.sessions.studio import RATE, STREAM, Studio, pieces, sound, truth
from tests.unit.streams.workers import misbehaving as deeds
from tests.unit.streams.workers.asking import session, take
from tests.unit.streams.workers.double import working
from tests.unit.streams.workers.misbehaving import COMMAND, sound_of
from tests.waiting import until
from topics.errors import EngineError
from topics.media import parse
from topics.sessions.records import Chunk, Sealed

pytestmark = pytest.mark.slow

ONE, TWO, THREE = "A" * 24, "B" * 24, "C" * 24
INTERNAL = "the audio could not be analysed: internal error"
FORBIDDEN = "the analysis tried what no worker may do: Operation not permitted"
DEADLINES = Deadlines(processor=0.3, idle=0.3, wall=60)
FLAC = msgspec.structs.replace(STREAM, content_type="application/octet-stream")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote(COMMAND)
    zygote.load(Path("fingerprint"))
    yield zygote
    workers = forked(zygote)
    zygote.stop()
    gone, _ = psutil.wait_procs(workers, timeout=60)
    assert len(gone) == len(workers)


def forked(zygote: Zygote) -> list[psutil.Process]:
    assert zygote._process is not None
    return living(psutil.Process(zygote._process.process))


def model() -> Fingerprint:
    return Fingerprint(SAMPLES)


@asynccontextmanager
async def playing(zygote: Zygote, spool: Path, workers: int = 2) -> AsyncIterator[Studio]:
    """Run a studio on processes until all analysis is done, then end them."""
    studio = Studio(model(), spool, workers, cache_bytes=10**9)
    studio.fork = partial(zygote.fork, memory_bytes(slot_bytes(0)))
    studio.deadlines = DEADLINES
    studio.restart()
    async with studio:
        yield studio
        await studio.settle()
        assert studio.ended == []
    await until(lambda: not forked(zygote))


@asynccontextmanager
async def one_worker(zygote: Zygote) -> AsyncIterator[Workers]:
    async with working(fork=partial(zygote.fork, memory_bytes(slot_bytes(0)))) as workers:
        await until(workers.processes)
        yield workers


def models_of(workers: Workers) -> set[str]:
    return {model.partition("@")[0] for model in workers.processes()[0].models}


@pytest.mark.parametrize(
    ("deed", "sentence", "deaths"),
    [
        (deeds.crash, DEADLY, DEATHS),
        (deeds.spin, DEADLY, DEATHS),
        (deeds.hang, DEADLY, DEATHS),
        (deeds.leave, DEADLY, DEATHS),
        (deeds.swell, "the analysis needs more memory than a worker may have", 0),
        (deeds.fork, FORBIDDEN, 0),
        (deeds.open_a_file, FORBIDDEN, 0),
        (deeds.open_a_socket, INTERNAL, 0),
        (deeds.end_the_parent, FORBIDDEN, 0),
        (deeds.write, None, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_misbehaving_model_fails_only_its_session(
    zygote: Zygote, tmp_path: Path, deed: Callable[[], None], sentence: str | None, deaths: int
) -> None:
    neighbours = {TWO: sound(3, 2), THREE: sound(3, 3)}
    with capture_logs() as lines:
        async with playing(zygote, tmp_path, workers=1) as studio:
            for session in (ONE, *neighbours):
                await studio.send(session, STREAM)
            for number in range(6):
                for session, audio in neighbours.items():
                    await studio.send(session, Chunk("c", number, pieces(audio)[number]))
                if number == 2:
                    await studio.send(ONE, Chunk("c", 0, sound_of(deed)))
            await studio.settle()
            filtered = all(process.filtered for process in studio.workers.processes())
    if not filtered and deed in (deeds.open_a_socket, deeds.end_the_parent, deeds.fork):
        pytest.skip("this kernel filters no system calls")
    assert studio.failures(ONE) == ([] if sentence is None else [sentence])
    assert studio.workers.deaths == deaths
    assert [line["event"] for line in lines].count("workers.died") == deaths
    if sentence is None:
        assert studio.scores(ONE) == truth(sound_of(deed), model())
    for session, audio in neighbours.items():
        assert studio.failures(session) == []
        assert studio.scores(session) == truth(audio, model())


async def test_stopped_worker_is_replaced(zygote: Zygote, tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with playing(zygote, tmp_path, workers=1) as studio:
            await studio.send(ONE, STREAM)
            for number, chunk in enumerate(pieces(sound(3))):
                if number % 2:
                    await until(lambda: studio.workers.processes())
                    os.kill(studio.workers.processes()[0].child.number, signal.SIGSTOP)
                await studio.send(ONE, Chunk("c", number, chunk))
                await studio.settle()
            assert studio.workers.deaths == 3
    assert studio.failures(ONE) == []
    assert studio.scores(ONE) == truth(sound(3), model())
    assert [line["reason"] for line in lines if line["event"] == "workers.died"] == [IDLE] * 3


@pytest.mark.parametrize("fault", [AttributeError(), OSError(errno.ENOSYS, "Function not implemented")])
async def test_audio_is_shared_through_files_without_memfd(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(os, "memfd_create", mock.Mock(side_effect=fault))
    if isinstance(fault, AttributeError):  # Systems that lack one lack the other.
        monkeypatch.delattr(os, "posix_fallocate")
    zygote_process._tell_of_files.cache_clear()
    with capture_logs() as lines:
        async with playing(zygote, tmp_path) as studio:
            await studio.send(ONE, STREAM)
            await studio.upload(ONE, pieces(sound(2)))
    assert studio.scores(ONE) == truth(sound(2), model())
    (line,) = [line for line in lines if line["event"] == "workers.without_memfd"]
    assert line["reason"] == f"audio for workers lies in {tempfile.gettempdir()}"


async def test_workers_wait_for_disk_space(zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is killed: the log line has the reason, and workers start once there is room."""
    monkeypatch.setattr(os, "memfd_create", mock.Mock(side_effect=AttributeError))
    full = OSError(errno.ENOSPC, "No space left on device")
    room = mock.patch.object(os, "posix_fallocate", side_effect=[full, full, full, full, mock.DEFAULT])
    with capture_logs() as lines, room:
        async with playing(zygote, tmp_path, workers=1) as studio:
            await studio.send(ONE, STREAM)
            await studio.upload(ONE, pieces(sound(2)))
    assert studio.scores(ONE) == truth(sound(2), model())
    said = [line["error"] for line in lines if line["event"] == "workers.later"]
    assert said == ["no process for audio can be started: No space left on device"] * 2


@asynccontextmanager
async def replacing(zygote: Zygote, spool: Path) -> AsyncIterator[Studio]:
    """Run a studio whose only worker dies in the body, between two chunks of a stream: no window changes."""
    async with playing(zygote, spool, workers=1) as studio:
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, pieces(sound(1)))
        await studio.settle()
        yield studio
        await studio.send(ONE, Chunk("c", 2, sound(1, 1)))
    assert studio.failures(ONE) == []
    assert studio.scores(ONE) == truth(sound(1) + sound(1, 1), model())


async def test_stopped_zygote_is_replaced_when_needed(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.processes.zygote_process.FORK_SECONDS", 0.5)
    async with replacing(zygote, tmp_path) as studio:
        assert zygote._process is not None
        psutil.Process(zygote._process.process).suspend()
        studio.workers.processes()[0].child.kill()


def test_zygote_stopped_while_loading_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_process, "LOADING", Deadlines(processor=20, idle=0.5, wall=60))
    zygote = Zygote(COMMAND)
    zygote.start()
    psutil.Process(stopped := zygote.process).suspend()
    zygote.load(Path("fingerprint"))
    assert zygote.process != stopped
    zygote.stop()


def ended(process: int) -> bool:
    return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


async def test_further_zygote_has_models_and_a_life_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Zygote(COMMAND)
    first.load(Path("fingerprint"))
    further = Zygote(COMMAND, first.further())
    another = Zygote(COMMAND, first.further())
    for one in (further, another):
        one.start()
    own = another.process
    assert {further.process, own} == {one.pid for one in forked(first)}
    await until(lambda: os.listdir(f"/proc/{own}/fd") == os.listdir(f"/proc/{first.process}/fd"))
    async with one_worker(further) as workers:
        assert models_of(workers) == {"fingerprint"}
        worker = workers.processes()[0].child.number
        psutil.Process(first.process).kill()
        first.stop()
        assert not ended(worker)
        assert not ended(further.process)
        psutil.Process(own).kill()
        await until(lambda: ended(own))
        another.load(Path("later"))
        assert another.process not in (0, own)
        assert not ended(worker)
    given = further.process
    for one in (further, another):
        one.stop()
    await until(lambda: ended(given))


async def test_dead_worker_with_open_socket_is_replaced(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zygote that is stopped right after it forked keeps the socket open. Then the socket reports no end."""
    kept, pair = list[socket.socket](), socket.socketpair

    def pair_with_third(*options: int, **more: int) -> tuple[socket.socket, socket.socket]:
        ours, theirs = pair(*options, **more)
        kept.append(theirs.dup())
        return ours, theirs

    monkeypatch.setattr(socket, "socketpair", pair_with_third)
    async with replacing(zygote, tmp_path) as studio:
        studio.workers.processes()[0].child.kill()
    for end in kept:
        end.close()


@pytest.mark.parametrize("kind", ["stream", "file"])
async def test_audio_that_breaks_decoder_fails_only_its_session(zygote: Zygote, tmp_path: Path, kind: str) -> None:
    """A worker with a file serves nobody else, so what takes too long is not tried again."""
    rates = {f"{number:024}": {3: CRASH, 7: SPIN}.get(number, RATE) for number in range(10)}
    opened = msgspec.structs.replace(FLAC, kind=kind)
    faults = {CRASH: [DEADLY], SPIN: [DEADLY if kind == "stream" else BROKEN_LIMIT]}
    audio = {session: encoded(noise(int(1.3 * rate), 5), rate, "FLAC") for session, rate in rates.items()}
    async with playing(zygote, tmp_path) as studio:
        for session, data in audio.items():
            await studio.send(session, opened, Chunk("c", 0, data), Sealed("c"))
    expected = decode.decode_chunk(audio[f"{0:024}"], parse(FLAC.content_type)).samples
    for session, rate in rates.items():
        assert studio.failures(session) == faults.get(rate, [])
        if rate == RATE:
            assert studio.scores(session) == truth((expected * 32768).astype("<i2").tobytes(), model())


async def test_owned_worker_is_never_shared(zygote: Zygote, tmp_path: Path) -> None:
    """Untrusted encoded audio is decoded apart from other projects' audio."""
    async with playing(zygote, tmp_path, workers=1) as studio:
        for number in range(6):
            opened = msgspec.structs.replace(FLAC if number % 2 else STREAM, project=f"p{number // 2}")
            data = encoded(noise(RATE), RATE, "FLAC") if number % 2 else sound(1)
            await studio.send(f"{number:024}", opened, Chunk("c", 0, data))
        await studio.settle()
        sessions = [process.sessions for process in studio.workers.processes()]
        assert sorted(map(len, sessions)) == [1, 1, 1, 3]
        assert len(forked(zygote)) == 4


async def test_cost_of_audio_is_measured(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "POLL_SECONDS", 0.01)
    async with one_worker(zygote) as workers:
        [process] = workers.processes()
        assert workers.cost == process.cost == FIRST_COST
        await take(session(workers, model()), sound(2), seconds=2.0)
        await until(lambda: process.cost != FIRST_COST)
        assert workers.cost == process.cost > 0


async def test_model_evicted_by_zygote_is_reloaded(zygote: Zygote) -> None:
    names = ["fingerprint", *(f"model{number}" for number in range(messages.MOST_MODELS)), "fingerprint"]
    for name in names:
        await asyncio.to_thread(zygote.load, Path(name))
    async with one_worker(zygote) as workers:
        models = models_of(workers)
        policy = os.sched_getscheduler(workers.processes()[0].child.number)
    assert policy == os.SCHED_BATCH, "it does not interrupt the loop"
    assert models == set(names[2:])


async def test_model_that_fails_to_reload_is_loaded_for_later_worker(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(zygote.load, Path("later"))
    load, too_large = zygote_process.ZygoteProcess.load, [Path("later")]

    def load_if_possible(process: zygote_process.ZygoteProcess, directory: Path) -> None:
        if directory in too_large:
            raise EngineError("too little memory")
        load(process, directory)

    monkeypatch.setattr(zygote_process.ZygoteProcess, "load", load_if_possible)
    assert zygote._process is not None
    psutil.Process(zygote._process.process).kill()
    models = []
    for _ in range(2):
        async with one_worker(zygote) as workers:
            models.append(models_of(workers))
        too_large.clear()
    assert ["later" in names for names in models] == [False, True]
    assert models[1] - models[0] == {"later"}
