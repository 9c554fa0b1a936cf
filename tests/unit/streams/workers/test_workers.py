"""Who gets which worker and when; what is too large, what nobody waits for, and answers that are none."""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import msgspec
import numpy as np
import pytest

from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.audio.levels import Measures, SoundMeter
from streams.decoders.child import Child
from streams.decoders.messages import Hello
from streams.models.manifest import ModelTag
from streams.models.protocol import Floats
from streams.workers import messages, worker
from streams.workers import workers as module
from streams.workers.messages import Answer, Beginning, Fault, Forgotten, Request, Scored, Segment, Step
from streams.workers.process import Call, Deaths, StateLost, WorkerDied
from streams.workers.session import WorkerSession
from streams.workers.workers import Workers
from tests.audio import noise
from tests.unit.streams.audio.engines import SAMPLES, TAGS, Fingerprint
from tests.unit.streams.sessions.engines import Gated
from tests.unit.streams.sessions.studio import RATE, RAW, pieces, sound, truth
from tests.unit.streams.workers.double import NOBODY, Death, WorkerThreads, working
from tests.waiting import until
from topics import media
from topics.errors import EngineError, Unavailable
from topics.folding import DEADLY, DEATHS, KILLED, KILLS
from topics.geometry import SESSIONS
from topics.sessions.records import Cursor

#: A third of a second that takes 8 MiB.
WIDE = media.parse("audio/x-raw; rate=384000; format=s32; channels=16")


def beginning(engine: Fingerprint, declared: str = RAW) -> Beginning:
    geometry = SESSIONS.window_ms, SESSIONS.hop_ms
    return Beginning(engine.manifest.model_id, *geometry, media.parse(declared), Cursor(), 0)


def session(workers: Workers, engine: Fingerprint, project: str = "p", owned: bool = False) -> WorkerSession:
    return WorkerSession(workers, project, beginning(engine), owned)


def segment(engine: Fingerprint, samples: Floats, last: bool = True) -> Segment:
    return Segment(engine.manifest.model_id, samples.nbytes, RATE, 0, 0, last)


class Ordered(Gated):
    """Takes samples, and notes whose it has scored, which their level says."""

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


# --- requests and answers -------------------------------------------------------------------------------------------


async def test_steps_give_the_windows_of_the_whole() -> None:
    engine, data = Fingerprint(), sound(4.3)
    async with working(engine) as workers:
        analysed = session(workers, engine)
        packed = b""
        for number, chunk in enumerate(pieces(data)):
            scored = await analysed.take([chunk], 0.5)
            assert (scored.first, scored.taken) == (len(packed) // TAGS, number + 1)
            packed += scored.packed
        packed += (await analysed.take([], 0.0, last=True)).packed
    assert packed == truth(data)


@pytest.mark.parametrize(
    "message",
    [
        Step(2**62, Beginning("m", 1000, 500, WIDE, Cursor(1, 2, 3, 4), 5, True, True), (1, 2), True, True, True, True),
        Step(1, None, (), forget=tuple(range(100))),
        Segment("m", 1 << 20, 384_000, 2**40, 2**30, True),
    ],
)
def test_requests_come_as_they_were_sent(message: Request) -> None:
    assert messages.request(messages.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Scored(1, b"12", Cursor(1, 2, 3, 4), 5, True, "broken", Measures({1: (0.5, 0.25, 3)}, {1: b"c"})),
        messages.SegmentScores(bytes(12)),
        Fault("a line", True, True),
        Forgotten(),
    ],
)
def test_answers_come_as_they_were_sent(message: Answer) -> None:
    assert messages.answer(messages.encode(message)) == message


async def test_as_many_of_the_largest_requests_as_there_are_slots() -> None:
    """None of them writes over another."""
    engine = Gated()
    size = messages.memory_bytes(0) // messages.SLOTS - messages.HEADER_BYTES
    sounds = [np.random.default_rng(n).integers(-(2**30), 2**30, size // 4, np.int32).tobytes() for n in range(8)]
    begin = msgspec.structs.replace(beginning(engine), media=WIDE)
    async with working(engine) as workers:
        process, blocker = workers.processes()[0], session(workers, engine)
        blocking = asyncio.create_task(blocker.take([sound(1)], 0.0))
        await asyncio.to_thread(engine.begun.wait, 10)
        sessions = [WorkerSession(workers, "p", begin, False) for _ in sounds]
        steps = [asyncio.create_task(one.take([data], 0.0)) for one, data in zip(sessions, sounds, strict=True)]
        await until(lambda: not process.has_slot)
        engine.gate.set()
        await asyncio.gather(blocking, *steps)
        ends = await asyncio.gather(*(one.take([], 0.0, last=True) for one in sessions))
    for end, data in zip(ends, sounds, strict=True):
        analysis = Analysis(Fingerprint(), SESSIONS, WIDE.rate)
        assert end.packed == analysis.feed(decode_chunk(data, WIDE).samples).packed + analysis.finish().packed


async def test_a_request_that_is_too_large_harms_no_other() -> None:
    engine = Gated()
    async with working(engine, slot_bytes=40_000) as workers:
        process, good = workers.processes()[0], session(workers, engine)
        step = asyncio.create_task(good.take([sound(1)], 1.0))
        await asyncio.to_thread(engine.begun.wait, 10)
        for _ in range(2 * messages.SLOTS):
            with pytest.raises(Unavailable, match="larger than this service takes"):
                await session(workers, engine).take([bytes(40_000)], 0.0)
        engine.gate.set()
        assert (await step).packed == truth(sound(1))
        assert (len(process), len(process._free)) == (0, messages.SLOTS)


async def test_an_answer_that_is_too_large_is_a_sentence() -> None:
    class Many(Fingerprint):
        """Has so many tags that the scores of a second fill a slot."""

        def __init__(self) -> None:
            super().__init__()
            tags = tuple(ModelTag(f"Tag_{n}", "Test", (0,), 0.5) for n in range(50_000))
            self.manifest = msgspec.structs.replace(self.manifest, tags=tags)

        def scores(self, patch: Floats) -> Floats:
            return np.full(50_000, 0.5, np.float32)

    engine = Many()
    async with working(engine, slot_bytes=40_000) as workers:
        with pytest.raises(EngineError, match="more scores than one step may have"):
            await session(workers, engine).take([sound(1)], 1.0)
        samples = noise(8000)
        with pytest.raises(EngineError, match="more scores than one step may have"):
            await workers.score("p", segment(engine, samples), samples)
        assert workers.deaths == 0


async def test_what_sounds_are_like_is_told_to_who_asks() -> None:
    engine, data = Fingerprint(), sound(3)
    heard, expected = SoundMeter(), SoundMeter()
    heard.draws = expected.draws = True
    async with working(engine) as workers:
        analysed = session(workers, engine)
        for number, chunk in enumerate(pieces(data)):
            await analysed.take([chunk], 0.5, meter=heard)
            samples = np.frombuffer(chunk, np.int16).astype(np.float32) / np.float32(32768)
            expected.feed(RATE, number * len(samples), samples)
    assert heard.window(0, 5, 5) == expected.window(0, 5, 5) != None  # noqa: E711


async def test_a_worker_forgets_the_session_that_was_used_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins again, and gives the same."""
    monkeypatch.setattr(worker, "MOST_SESSIONS", 2)
    engine = Fingerprint()
    async with working(engine) as workers:
        sessions = [session(workers, engine) for _ in range(3)]
        for one in sessions:
            await one.take([sound(1)], 1.0)
        with pytest.raises(StateLost):
            await sessions[0].take([sound(1)], 1.0)
        assert (await session(workers, engine).take([sound(1)], 1.0)).packed == truth(sound(1))
        await sessions[2].take([sound(1)], 1.0)


async def test_a_session_that_is_closed_is_forgotten_with_the_next_step() -> None:
    engine = Fingerprint()
    async with working(engine) as workers:
        first, second = session(workers, engine), session(workers, engine)
        await first.take([sound(1)], 1.0)
        first.close()
        first.close()
        await second.take([sound(1)], 1.0)
        with pytest.raises(StateLost):
            await first.take([sound(1)], 1.0)


async def test_stopping_answers_who_waits() -> None:
    engine = Gated()
    async with working(engine) as workers:
        step = asyncio.create_task(session(workers, engine).take([sound(1)], 1.0))
        await asyncio.to_thread(engine.begun.wait, 10)
        await workers.stop()
        with pytest.raises(StateLost):
            await step
        assert workers.deaths == 0
    engine.gate.set()


async def test_what_nobody_waits_for_is_not_sent() -> None:
    engine = Ordered()
    async with working(engine) as workers:
        steps = [asyncio.create_task(session(workers, engine).take([level(n, 2)], 2.0)) for n in (1, 2, 3)]
        await asyncio.to_thread(engine.begun.wait, 10)
        steps[1].cancel()
        engine.gate.set()
        await asyncio.gather(*steps, return_exceptions=True)
        assert workers._shared[0].count == 0
    assert engine.order == [1] * 3 + [3] * 3


# --- turns ----------------------------------------------------------------------------------------------------------


def owners_of(order: list[int]) -> list[int]:
    """Return whose patches were scored, each once for patches in a row."""
    return [one for at, one in enumerate(order) if at == 0 or order[at - 1] != one]


async def test_projects_have_their_steps_taken_in_turn() -> None:
    engine = Ordered()
    async with working(engine) as workers:
        steps = [asyncio.create_task(session(workers, engine, "loud").take([level(1, 2)], 2.0)) for _ in range(12)]
        await asyncio.to_thread(engine.begun.wait, 10)
        steps += [asyncio.create_task(session(workers, engine, "quiet").take([level(2, 2)], 2.0)) for _ in range(2)]
        await until(lambda: workers._shared[0].count == 13)
        engine.gate.set()
        await asyncio.gather(*steps)
    # One of the loud is in work and one more may have its turn before each of the quiet.
    assert owners_of(engine.order)[:4] == [1, 2, 1, 2]
    assert len(engine.order) == 14 * 3
    assert engine.order[: 5 * 3].count(2) == 2 * 3


async def test_a_step_does_not_wait_for_the_rest_of_a_segment_nor_a_segment_for_all_steps() -> None:
    engine = Ordered()
    samples = np.full(16 * RATE, 1 / 64, np.float32)
    ended: list[str] = []
    async with working(engine) as workers:
        scoring = asyncio.create_task(workers.score("p", segment(engine, samples), samples))
        scoring.add_done_callback(lambda _: ended.append("segment"))
        await asyncio.to_thread(engine.begun.wait, 10)

        async def live(name: str, steps: Iterator[int]) -> None:
            analysed = session(workers, engine, name)
            for _ in steps:
                await analysed.take([level(2)], 1.0)
                ended.append(name)
                if scoring.done():
                    return

        greedy = [asyncio.create_task(live("greedy", count())) for _ in range(4)]
        quiet = asyncio.create_task(live("quiet", iter(range(1))))
        await until(lambda: workers._shared[0].count)
        engine.gate.set()
        await asyncio.gather(quiet, scoring, *greedy)
    at = ended.index("segment")
    assert "quiet" in ended[:6]
    # Eight turns of four windows; in each turn of the others are a worker's two seconds at most.
    assert 1 <= at <= 2 * 8 + 4
    assert len(scoring.result()) == 31 * TAGS * 4


@pytest.mark.parametrize("kind", ["steps", "segments"])
async def test_what_is_to_be_alone_waits_for_what_is_in_work_and_nothing_else(kind: str) -> None:
    """However much live audio and how many recordings there are besides."""
    engine = Ordered()
    short = np.full(RATE, 1 / 64, np.float32)
    met: list[int] = []

    async with working(engine) as workers:
        process = workers.processes()[0]
        running = True

        async def background() -> None:
            while running:
                await workers.score("jobs", segment(engine, short), short)

        async def live() -> None:
            analysed = session(workers, engine, "live")
            while running:
                await analysed.take([level(1)], 0.5)

        crowd = [asyncio.create_task(work()) for work in (background, live) for _ in range(4)]
        await asyncio.to_thread(engine.begun.wait, 10)
        send = process.send

        def noted(call: object) -> None:
            met.append(len(process))
            send(call)  # type: ignore[arg-type]
            if call.alone:  # type: ignore[attr-defined]
                met.append(-1)

        process.send = noted  # type: ignore[method-assign]
        if kind == "steps":
            suspect = asyncio.create_task(session(workers, engine, "p").take([level(2)], 1.0, alone=True))
        else:
            future = asyncio.get_running_loop().create_future()
            lone = msgspec.structs.replace(segment(engine, short))
            call = Call(lambda _: lone, [short.data.cast("B")], future, lone.model, background=True, alone=True)
            suspect = asyncio.ensure_future(workers.ask(workers.place(None), "p", call))  # type: ignore[arg-type]
        engine.gate.set()
        await asyncio.wait_for(suspect, 20)
        running = False
        await asyncio.gather(*crowd)
    at = met.index(-1)
    assert met[at - 1] == 0, "it was alone when it came"
    assert met[at + 1] == 0, "and until it was done"
    assert at <= 2 * messages.SLOTS


# --- places ---------------------------------------------------------------------------------------------------------


async def test_sessions_are_spread_over_the_workers() -> None:
    engine = Fingerprint()
    async with working(engine, count=3) as workers:
        for _ in range(9):
            await session(workers, engine).take([sound(0.1)], 0.1)
        assert [len(process.sessions) for process in workers.processes()] == [3, 3, 3]


def owners(workers: Workers) -> list[str]:
    """Return the projects that have a worker."""
    return sorted(place.owner for place in workers.places() if place.owner is not None and place.process is not None)


async def test_owned_workers_are_of_one_project_and_end_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_OWNED", 3)
    engine = Gated()
    engine.gate.set()
    async with working(engine) as workers:
        sessions = {name: session(workers, engine, name, owned=True) for name in "abcde"}
        for name in "abc":
            await sessions[name].take([sound(1)], 1.0)
        assert len({place.process for place in workers._owned.values()}) == 3
        await sessions["a"].take([sound(1)], 1.0)
        # One that is at work does not end.
        engine.gate.clear()
        busy = asyncio.create_task(sessions["b"].take([sound(1)], 1.0))
        new = asyncio.create_task(sessions["d"].take([sound(1)], 1.0))
        await until(lambda: "d" in owners(workers))
        engine.gate.set()
        await asyncio.gather(busy, new)
        assert owners(workers) == ["a", "b", "d"]
        with pytest.raises(StateLost):
            await sessions["c"].take([sound(1)], 1.0)
        assert (await session(workers, engine, "c", owned=True).take([sound(1)], 1.0)).packed == truth(sound(1))
        assert len(owners(workers)) == 3
        assert workers.deaths == 0


async def test_projects_wait_for_a_worker_when_there_are_as_many_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However much they have to do: a worker goes from one to the next, and never is there one more."""
    monkeypatch.setattr(module, "MOST_OWNED", 2)
    monkeypatch.setattr(module, "SLICE_SECONDS", 0.05)
    engine = Fingerprint()
    steps, most = Counter[str](), 0
    async with working(engine) as workers:

        async def greedy(name: str) -> None:
            nonlocal most
            while min(steps[name] for name in "abcde") < 3:
                with suppress(StateLost):
                    await session(workers, engine, name, owned=True).take([sound(1)], 1.0)
                    steps[name] += 1
                most = max(most, len(owners(workers)))

        async with asyncio.timeout(60):
            await asyncio.gather(*(greedy(name) for name in "abcde" for _ in range(2)))
        assert workers.deaths == 0
    assert most == 2


async def test_a_worker_of_a_project_ends_when_it_has_had_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    engine = Fingerprint()
    async with working(engine) as workers:
        analysed = session(workers, engine, "a", owned=True)
        assert (await analysed.take([sound(1)], 1.0)).packed == truth(sound(1))
        await until(lambda: len(workers.places()) == 1)
        with pytest.raises(StateLost):
            await analysed.take([sound(1)], 1.0)
        assert (await session(workers, engine, "a", owned=True).take([sound(1)], 1.0)).packed == truth(sound(1))


async def test_a_model_that_is_loaded_later_renews_the_worker() -> None:
    engine, later = Fingerprint(), Fingerprint(name="later")
    engines = [engine]
    threads = WorkerThreads(lambda: list(engines))
    workers = Workers(1, threads.fork)
    await workers.start()
    first = session(workers, engine)
    assert (await first.take([sound(1)], 1.0)).packed == truth(sound(1))
    engines.append(later)
    assert (await session(workers, later).take([sound(1)], 1.0)).packed == truth(sound(1))
    with pytest.raises(StateLost):
        await first.take([sound(1)], 1.0)
    again = session(workers, engine)
    assert (await again.take([sound(2)], 2.0)).packed == truth(sound(2))
    assert (await session(workers, later).take([sound(1)], 1.0)).packed == truth(sound(1))
    assert len(threads.lines) == 2
    assert workers.deaths == 0
    await workers.stop()


async def test_renewals_are_no_deaths_of_a_recording() -> None:
    engine = Gated()
    engines: list[Fingerprint] = [engine]
    workers = Workers(1, WorkerThreads(lambda: list(engines)).fork)
    await workers.start()
    samples = noise(2 * RATE)
    scoring = asyncio.create_task(workers.score("p", segment(engine, samples), samples))
    for number in range(DEATHS + 1):
        await asyncio.to_thread(engine.begun.wait, 10)
        engine.begun.clear()
        engines.append(Fingerprint(name=f"later{number}"))
        await session(workers, engines[-1]).take([sound(0.1)], 0.1)
    engine.gate.set()
    assert len(await scoring) == 3 * TAGS * 4
    await workers.stop()


# --- workers that are no longer ours --------------------------------------------------------------------------------


class Liar:
    """A worker that says what it is told to, to every request."""

    def __init__(self, *answers: tuple[bytes, bytes]) -> None:
        self.answers = list(answers)
        self.forks = 0

    def fork(self) -> tuple[socket.socket, int]:
        self.forks += 1
        threads = WorkerThreads(lambda: [Fingerprint()])
        if not self.answers:
            return threads.fork()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        said, written = self.answers.pop(0)
        memory = os.memfd_create("liar")
        os.ftruncate(memory, messages.SLOTS * (1 << 17))
        threading.Thread(target=self._lie, args=(theirs, mmap.mmap(memory, 0), said, written), daemon=True).start()
        return ours, memory

    def _lie(self, line: socket.socket, memory: mmap.mmap, said: bytes, written: bytes) -> None:
        with line, suppress(ConnectionError):
            line.send(messages.encode(Hello(NOBODY, True, (Fingerprint().manifest.model_id,))))
            for slot in line.recv(messages.LINE_BYTES):
                start = slot * (len(memory) // messages.SLOTS)
                memory[start : start + len(written)] = written
                line.send(said or bytes([slot]))
            line.recv(1)


def answered(message: bytes) -> bytes:
    return messages.LENGTH.pack(len(message)) + message


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (b"\x00", b""),
        (b"\xff", b""),
        (b"\x07\x07", answered(messages.encode(Scored(0, b"", Cursor(), 1)))),
        (b"", answered(b"\xc1")),
        (b"", answered(b"")),
        (b"", messages.LENGTH.pack(1 << 30)),
        (b"", answered(messages.encode({"no": "answer"}))),
    ],
    ids=["another slot", "no slot", "twice", "no msgpack", "nothing", "too long", "no answer"],
)
async def test_a_worker_that_says_what_cannot_be_is_ended(said: bytes, written: bytes) -> None:
    """Only its parent's word counts: who waits hears that it died, and another one comes."""
    engine = Fingerprint()
    liar = Liar((said, written))
    workers = Workers(1, liar.fork)
    await workers.start()
    first = session(workers, engine)
    if said == b"\x07\x07":
        # The first of the two is an answer to the request.
        await first.take([sound(1)], 1.0)
        await until(lambda: workers.deaths == 1)
    else:
        with pytest.raises(WorkerDied):
            await first.take([sound(1)], 1.0)
    assert (await session(workers, engine).take([sound(1)], 1.0)).packed == truth(sound(1))
    assert (workers.deaths, liar.forks) == (1, 2)
    await workers.stop()


async def test_a_worker_that_forgets_what_it_was_just_told_is_taken_for_dead() -> None:
    """Else its sessions would begin again for ever."""
    engine = Fingerprint()
    workers = Workers(1, Liar((b"", answered(messages.encode(Forgotten())))).fork)
    await workers.start()
    with pytest.raises(WorkerDied):
        await session(workers, engine).take([sound(1)], 1.0)
    await workers.stop()


@pytest.mark.parametrize("said", [b"", b"\xc1", messages.encode({"no": "greeting"})])
async def test_a_worker_that_does_not_greet_is_none(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Another one is started at once; only the next failure has a pause."""
    monkeypatch.setattr(module, "PAUSES", (0.0, math.inf))
    threads = WorkerThreads(lambda: [Fingerprint()])
    forks = 0

    def fork() -> tuple[socket.socket, int]:
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

    workers = Workers(1, fork)
    await workers.start()
    step = session(workers, Fingerprint()).take([sound(1)], 1.0)
    assert (await step).packed == truth(sound(1))
    assert (forks, workers.deaths) == (2, 0)
    await workers.stop()


async def test_a_recording_that_a_worker_dies_of_once_is_scored_by_another() -> None:
    class Once(Fingerprint):
        dead = False

        def scores(self, patch: Floats) -> Floats:
            if not self.dead:
                self.dead = True
                raise Death
            return super().scores(patch)

    engine, samples = Once(), noise(2 * RATE)
    async with working(engine) as workers:
        assert len(await workers.score("p", segment(engine, samples), samples)) == 3 * TAGS * 4
        assert workers.deaths == 1


def test_kills_from_outside_count_apart() -> None:
    deaths = Deaths()
    said = [deaths.note(WorkerDied(killed)) for killed in (False, True, False, True)]
    assert said == [None] * 4
    assert [deaths.note(WorkerDied(killed=True)) for _ in range(KILLS - 2)] == [None] * (KILLS - 3) + [KILLED]
    assert Deaths(own=DEATHS - 1).note(WorkerDied()) == DEADLY


async def test_kills_from_outside_cost_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """However they come, one after the other; of three deaths of its own it is told by the same sentence as ever."""
    engine = Gated()
    threads, samples = WorkerThreads(lambda: [engine]), noise(2 * RATE)
    workers = Workers(1, threads.fork)
    await workers.start()
    killed = True
    monkeypatch.setattr(Child, "was_killed", lambda child: killed)
    for killed, ends in ((True, "scores"), (False, DEADLY)):
        engine.gate.clear()
        engine.begun.clear()
        scoring = asyncio.create_task(workers.score("p", segment(engine, samples), samples))
        for _ in range(2 * DEATHS if killed else DEATHS):
            await asyncio.to_thread(engine.begun.wait, 10)
            engine.begun.clear()
            threads.kill(-1)
        engine.gate.set()
        if ends == DEADLY:
            with pytest.raises(EngineError, match=DEADLY):
                await scoring
        else:
            assert len(await scoring) == 3 * TAGS * 4
    await workers.stop()


async def test_a_fork_that_fails_for_good_ends_the_service() -> None:
    def fail() -> tuple[socket.socket, int]:
        raise RuntimeError("a bug")

    workers = Workers(1, fail)
    await workers.start()
    await until(lambda: workers.crashed)
    with suppress(RuntimeError):
        await workers.stop()
