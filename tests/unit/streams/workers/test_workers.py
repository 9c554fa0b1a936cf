"""Requests and answers of workers; oversized requests, unwanted and invalid answers, and deaths."""

import asyncio
import math
import mmap
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final
from unittest import mock

import msgspec
import numpy as np
import pytest

from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.audio.levels import SoundMeter
from streams.models.manifest import ModelTag
from streams.models.protocol import Floats
from streams.processes.child import Child
from streams.processes.deaths import DEADLY, DEATHS, KILLED, KILLS, Deaths
from streams.processes.messages import Hello
from streams.workers import messages, worker
from streams.workers import workers as module
from streams.workers.messages import Answer, Forgotten, ScoredWindows, Segment
from streams.workers.process import StateLost, WorkerDied
from streams.workers.progress import StreamProgress
from streams.workers.session import WorkerSession
from streams.workers.workers import Workers
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.engines import Gated
from tests.unit.streams.sessions.studio import RATE, RAW, pieces, sound, truth
from tests.unit.streams.workers.asking import Ordered, asked, beginning, level, of_file, session, take
from tests.unit.streams.workers.double import NOBODY, WorkerThreads, working
from tests.waiting import until
from topics import media
from topics.errors import EngineError, Unavailable
from topics.geometry import SESSIONS
from topics.sessions.records import Cursor

#: A third of a second that takes 8 MiB.
WIDE = media.parse("audio/x-raw; rate=384000; format=s32; channels=16")


# --- requests and answers -------------------------------------------------------------------------------------------


def test_answers_leave_with_those_of_the_steps_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """But no answer waits long for another."""
    line, now = mock.Mock(), 0.0
    memory = mmap.mmap(-1, messages.memory_bytes(messages.slot_bytes(0)))
    monkeypatch.setattr(worker, "time", mock.Mock(monotonic=lambda: now))
    one = worker.Worker(line, memory, {})
    step = messages.Step(0)
    for waiting, later in ((1, 0.004), (1, 0.004), (1, 0.0), (0, 0.0), (0, 0.0)):
        one._steps.clear()
        one._steps.extend([(9, step)] * waiting)
        one._write({len(line.mock_calls): Forgotten()})
        now += later
    assert [bytes(call.args[0]) for call in line.send.call_args_list] == [bytes([0, 0, 0]), b"\x01", b"\x02"]


async def test_largest_requests_fill_all_slots_without_overlap() -> None:
    """None of them overwrites another."""
    engine = Gated()
    size = messages.slot_bytes(0) - messages.HEADER_BYTES
    sounds = [np.random.default_rng(n).integers(-(2**30), 2**30, size // 4, np.int32).tobytes() for n in range(8)]
    begin = msgspec.structs.replace(beginning(engine), media=WIDE)
    async with working(engine) as workers:
        process, blocker = workers.processes()[0], session(workers, engine)
        blocking = asked(blocker, sound(1), seconds=0.0)
        await asyncio.to_thread(engine.begun.wait, 60)
        small = [sound(1, n) for n in range(1, messages.SMALL_SLOTS)]
        short = [asked(session(workers, engine), data, seconds=0.0) for data in small]
        sessions = [WorkerSession(workers, "p", begin, False) for _ in sounds]
        steps = [asked(one, data, seconds=0.0) for one, data in zip(sessions, sounds, strict=True)]
        await until(lambda: not process._free and not process._free_small)
        engine.gate.set()
        await asyncio.gather(blocking, *steps)
        ends = await asyncio.gather(*(take(one, seconds=0.0, last=True) for one in sessions))
        assert [(await step).packed for step in short] == [truth(data) for data in small]
    for end, data in zip(ends, sounds, strict=True):
        analysis = Analysis(Fingerprint(), SESSIONS, WIDE.rate)
        assert end.packed == analysis.feed(decode_chunk(data, WIDE).samples) + analysis.finish()


@pytest.mark.parametrize("head", [b"\xff\xf1", b"\x0b\x77", b"\0\0\0\0ftyp", b"wvpk", b"ID3", b"RIFF\0\0\0\0WAVE"])
def test_long_raw_chunk_may_begin_like_a_container(head: bytes) -> None:
    data = head + sound(20)[len(head) :]
    stream = StreamProgress(engine := Fingerprint(), beginning(engine), worker.open_file)
    scores = [stream.take([data])]
    while stream.reading:
        scores.append(stream.take([]))
    assert [scored.error for scored in scores] == [None] * len(scores)
    assert b"".join(scored.packed for scored in (*scores, stream.finish())) == truth(data)


async def test_oversized_request_is_rejected_alone() -> None:
    engine = Gated()
    async with working(engine, slot_bytes=40_000) as workers:
        process, good = workers.processes()[0], session(workers, engine)
        step = asked(good, sound(1))
        await asyncio.to_thread(engine.begun.wait, 60)
        for _ in range(2 * messages.SLOTS):
            with pytest.raises(Unavailable, match="larger than this service takes"):
                await take(session(workers, engine), bytes(messages.SMALL_AUDIO_BYTES + 1), seconds=0.0)
        engine.gate.set()
        assert (await step).packed == truth(sound(1))
        assert (len(process), len(process._free)) == (0, messages.SLOTS)


async def test_oversized_answer_raises_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(Fingerprint):
        """Has so many tags that the scores of a second fill a slot."""

        def __init__(self) -> None:
            super().__init__()
            tags = tuple(ModelTag(f"Tag_{n}", "Test", (0,), 0.5) for n in range(50_000))
            self.manifest = msgspec.structs.replace(self.manifest, tags=tags)

        def scores(self, patch: Floats) -> Floats:
            return np.full(50_000, 0.5, np.float32)

    monkeypatch.setattr(messages, "SMALL_SLOT_BYTES", 40_000)
    engine = Many()
    async with working(engine, slot_bytes=40_000) as workers:
        with pytest.raises(EngineError, match="more scores than one step may have"):
            await take(session(workers, engine), sound(1))
        assert workers.deaths == 0


async def test_requested_sound_measures_are_returned() -> None:
    engine, data = Fingerprint(), sound(3)
    heard, expected = SoundMeter(), SoundMeter()
    heard.draws = expected.draws = True
    async with working(engine) as workers:
        analysed = session(workers, engine)
        for number, chunk in enumerate(pieces(data)):
            await take(analysed, chunk, seconds=0.5, meter=heard)
            samples = np.frombuffer(chunk, np.int16).astype(np.float32) / np.float32(32768)
            expected.feed(RATE, number * len(samples), samples)
    assert heard.window(0, 5, 5) == expected.window(0, 5, 5) != None  # noqa: E711


async def test_worker_evicts_least_recently_used_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session begins again, with the same results."""
    monkeypatch.setattr(worker, "MOST_SESSIONS", 2)
    engine = Fingerprint()
    async with working(engine) as workers:
        sessions = [session(workers, engine) for _ in range(3)]
        for one in sessions:
            await take(one, sound(1))
        with pytest.raises(StateLost):
            await take(sessions[0], sound(1))
        assert (await take(session(workers, engine), sound(1))).packed == truth(sound(1))
        await take(sessions[2], sound(1))


@pytest.mark.parametrize("rejected", [False, True])
async def test_closed_session_is_forgotten_at_next_step(rejected: bool) -> None:
    """A rejected request is none."""
    engine = Fingerprint()
    async with working(engine, slot_bytes=40_000) as workers:
        first = session(workers, engine)
        await take(first, sound(1))
        first.close()
        first.close()
        if rejected:
            with pytest.raises(Unavailable, match="larger than this service takes"):
                await take(session(workers, engine), bytes(messages.SMALL_AUDIO_BYTES + 1), seconds=0.0)
        await take(session(workers, engine), sound(1))
        with pytest.raises(StateLost):
            await take(first, sound(1))


async def test_stop_fails_waiting_requests() -> None:
    engine = Gated()
    async with working(engine) as workers:
        step = asked(session(workers, engine), sound(1))
        await asyncio.to_thread(engine.begun.wait, 60)
        await workers.stop()
        with pytest.raises(StateLost):
            await step
        assert workers.deaths == 0
    engine.gate.set()


async def test_cancelled_request_is_not_sent() -> None:
    engine = Ordered()
    async with working(engine) as workers:
        steps = [asked(session(workers, engine), level(n, 2), seconds=8.0) for n in (1, 2, 3)]
        await asyncio.to_thread(engine.begun.wait, 60)
        steps[1].cancel()
        engine.gate.set()
        await asyncio.gather(*steps, return_exceptions=True)
        assert workers._shared[0].count == 0
    assert engine.order == [1] * 3 + [3] * 3


# --- compromised workers --------------------------------------------------------------------------------------------


class Liar:
    """A worker that gives scripted answers to every request."""

    def __init__(self, *answers: tuple[bytes, bytes]) -> None:
        self.answers = list(answers)
        self.forks = 0

    def fork(self, file: int | None = None) -> tuple[socket.socket, int]:
        self.forks += 1
        threads = WorkerThreads(lambda: [Fingerprint()])
        if not self.answers:
            return threads.fork()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        said, written = self.answers.pop(0)
        memory = os.memfd_create("liar")
        os.ftruncate(memory, messages.memory_bytes(1 << 20))
        threading.Thread(target=self._lie, args=(theirs, mmap.mmap(memory, 0), said, written), daemon=True).start()
        return ours, memory

    def _lie(self, line: socket.socket, memory: mmap.mmap, said: bytes, written: bytes) -> None:
        with line, suppress(ConnectionError):
            line.send(messages.encode(Hello(NOBODY, True, (Fingerprint().manifest.model_id,))))
            for slot in line.recv(messages.LINE_BYTES):
                messages.slots_of(memory)[slot][: len(written)] = written
                line.send(said or bytes([slot]))
            line.recv(1)


def answered(message: bytes) -> bytes:
    return messages.LENGTH.pack(len(message)) + message


#: The slot of the first short request.
LAST: Final = bytes([messages.SLOTS + messages.SMALL_SLOTS - 1])


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (b"\x00", b""),
        (b"\xff", b""),
        (LAST * 2, answered(messages.encode(ScoredWindows(0, b"", Cursor(), 1)))),
        (b"", answered(b"\xc1")),
        (b"", answered(b"")),
        (b"", messages.LENGTH.pack(1 << 30)),
        (b"", answered(messages.encode({"no": "answer"}))),
    ],
    ids=["another slot", "no slot", "twice", "no msgpack", "nothing", "too long", "no answer"],
)
async def test_worker_with_invalid_answer_is_replaced(said: bytes, written: bytes) -> None:
    """Its statements are not trusted: waiting callers get an error that it died, and another worker starts."""
    engine = Fingerprint()
    liar = Liar((said, written))
    async with working(fork=liar.fork) as workers:
        first = session(workers, engine)
        if said == LAST * 2:
            # The first of the two is an answer to the request.
            await take(first, sound(1))
            await until(lambda: workers.deaths == 1)
        else:
            with pytest.raises(WorkerDied):
                await take(first, sound(1))
        assert (await take(session(workers, engine), sound(1))).packed == truth(sound(1))
        assert (workers.deaths, liar.forks) == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [Forgotten(), ScoredWindows(0, b"", Cursor(), 2), ScoredWindows(0, b"", Cursor(), -1)],
    ids=["forgets", "more", "less"],
)
async def test_worker_that_lies_about_progress_counts_as_dead(answer: Answer) -> None:
    """Otherwise its sessions would begin again forever, or skip chunks."""
    engine = Fingerprint()
    async with working(fork=Liar((b"", answered(messages.encode(answer)))).fork) as workers:
        with pytest.raises(WorkerDied):
            await take(session(workers, engine), sound(1))


async def test_worker_that_dies_between_steps_of_a_file_is_counted(tmp_path: Path) -> None:
    """A file could have each worker do so, and would begin again forever."""
    engine, path = Fingerprint(), tmp_path / "a"
    threads = WorkerThreads(lambda: [engine])
    path.write_bytes(sound(40))
    async with working(fork=threads.fork, count=0) as workers:
        analysed, _ = of_file(workers, engine, path)
        assert (await take(analysed, seconds=0.0)).reading
        threads.kill(-1)
        await until(lambda: workers.deaths)
        with pytest.raises(WorkerDied):
            await take(analysed, seconds=0.0)


@pytest.mark.parametrize("said", [b"", b"\xc1", messages.encode({"no": "greeting"})])
async def test_worker_without_greeting_is_replaced(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Another one is started at once; only the next failure has a pause."""
    monkeypatch.setattr(module, "PAUSES", (0.0, math.inf))
    threads = WorkerThreads(lambda: [Fingerprint()])
    forks = 0

    def fork(file: int | None) -> tuple[socket.socket, int]:
        nonlocal forks
        forks += 1
        ours, memory = threads.fork()
        if forks > 1:
            return ours, memory
        ours.close()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            if said:
                theirs.send(said)
        return ours, memory

    async with working(fork=fork) as workers:
        step = take(session(workers, Fingerprint()), sound(1))
        assert (await step).packed == truth(sound(1))
        assert (forks, workers.deaths) == (2, 0)


def test_external_kills_are_counted_separately() -> None:
    deaths = Deaths()
    said = [deaths.note(killed) for killed in (False, True, False, True)]
    assert said == [None] * 4
    assert [deaths.note(killed=True) for _ in range(KILLS - 2)] == [None] * (KILLS - 3) + [KILLED]
    assert Deaths(own=DEATHS - 1).note(killed=False) == DEADLY


@pytest.mark.parametrize("killed", [True, False])
async def test_external_kills_do_not_fail_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """In any sequence; after three deaths of its own the recording gets the usual error."""
    # Each case has its own engine: a thread whose worker is gone continues once the gate is open.
    engine = Gated()
    threads, path = WorkerThreads(lambda: [engine]), tmp_path / "a"
    path.write_bytes(sound(2))
    async with working(fork=threads.fork, count=0) as workers:
        monkeypatch.setattr(Child, "was_killed", lambda child: killed)
        slot = workers.open_slot(path.open("rb"), "p")
        request = Segment(0, media.parse(RAW), engine.manifest.model_id)
        scoring = asyncio.create_task(workers.score(slot, "p", request))
        for _ in range(2 * DEATHS if killed else DEATHS):
            await asyncio.to_thread(engine.begun.wait, 60)
            engine.begun.clear()
            threads.kill(-1)
        if killed:
            engine.gate.set()
            scores = (await scoring).scores
            assert scores is not None
            assert len(scores) == 3 * TAGS * 4
        else:
            with pytest.raises(EngineError, match=DEADLY):
                await scoring
            engine.gate.set()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_stop_waits_for_worker_of_file_on_its_way(tmp_path: Path, is_closed: bool) -> None:
    """Otherwise nobody closes what the fork returns."""
    threads, path = WorkerThreads(lambda: [Fingerprint()]), tmp_path / "a"
    path.write_bytes(sound(2))
    begun, gate, lines = threading.Event(), threading.Event(), list[socket.socket]()

    def fork(file: int | None) -> tuple[socket.socket, int]:
        begun.set()
        gate.wait(60)
        line, memory = threads.fork(file)
        lines.append(line)
        return line, memory

    workers = Workers(0, fork)
    await workers.start()
    request = Segment(0, media.parse(RAW), Fingerprint().manifest.model_id)
    slot = workers.open_slot(path.open("rb"), "p")
    scoring = asyncio.create_task(workers.score(slot, "p", request))
    await asyncio.to_thread(begun.wait, 60)
    if is_closed:
        workers.close_slot(slot)
    stopping = asyncio.create_task(workers.stop())
    await asyncio.sleep(0.01)
    assert not stopping.done()
    gate.set()
    await stopping
    assert [line.fileno() for line in lines] == [-1]
    scoring.cancel()
    await asyncio.gather(scoring, return_exceptions=True)


async def test_permanent_fork_failure_ends_service() -> None:
    def fail(file: int | None) -> tuple[socket.socket, int]:
        raise RuntimeError("a bug")

    workers = Workers(1, fail)
    await workers.start()
    await until(lambda: workers.crashed)
    with suppress(RuntimeError):
        await workers.stop()
