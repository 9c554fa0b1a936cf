"""The order of requests and their workers: turns by project, exclusive requests, workers of one project."""

import asyncio
import math
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, groupby

import msgspec
import numpy as np
import pytest

from streams.workers import messages, places
from streams.workers import workers as module
from streams.workers.process import FIRST_COST, Call, ModelMissing, StateLost
from streams.workers.workers import Workers
from tests.audio import noise
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.engines import Gated
from tests.unit.streams.sessions.studio import RATE, sound, truth
from tests.unit.streams.workers.asking import Ordered, level, segment, session
from tests.unit.streams.workers.double import WorkerThreads, working
from tests.waiting import turn, until
from topics.folding import DEATHS

# --- turns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
async def test_steps_of_projects_take_turns(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    monkeypatch.setattr(places, "SHARED_SECONDS", math.inf)
    engine = Ordered()
    async with working(engine) as workers:
        if known:
            engine.gate.set()
            for name in ("quiet", "loud"):
                await session(workers, engine, name).take([level(3, 2)], 2.0)
            engine.gate.clear()
            engine.begun.clear()
            engine.order.clear()
        steps = [asyncio.create_task(session(workers, engine, "loud").take([level(1, 2)], 2.0)) for _ in range(12)]
        await asyncio.to_thread(engine.begun.wait, 10)
        steps += [asyncio.create_task(session(workers, engine, "quiet").take([level(2, 2)], 2.0)) for _ in range(2)]
        # What a worker of one project has in work is all that a new project waits for.
        running = 1 if known else int(places.ALONE_IN_WORK / FIRST_COST / 2)
        await until(lambda: workers._shared[0].count == 14 - running)
        engine.gate.set()
        await asyncio.gather(*steps)
    # One more loud request may have its turn before each quiet one.
    assert [owner for owner, _ in groupby(engine.order)][:4] == [1, 2, 1, 2]
    assert len(engine.order) == 14 * 3
    assert engine.order[: (running + 4) * 3].count(2) == 2 * 3


@pytest.mark.parametrize(("cost", "in_work"), [(0.004, 3), (0.001, 15)])
async def test_projects_share_time_of_worker(monkeypatch: pytest.MonkeyPatch, cost: float, in_work: int) -> None:
    """A light model has more seconds of audio in work, or the worker would idle until the loop's next turn."""
    monkeypatch.setattr(places, "SHARED_SECONDS", math.inf)
    engine = Ordered()
    async with working(engine) as workers:
        [process] = workers.processes()
        process.cost = cost
        steps = [
            asyncio.create_task(session(workers, engine, project).take([level(1)], 1.0))
            for project in ("one", "two") * 10
        ]
        await until(lambda: workers._shared[0].count == 20 - in_work)
        await turn()
        assert len(process) == in_work
        engine.gate.set()
        await asyncio.gather(*steps)


async def test_steps_and_segments_take_turns() -> None:
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
    # Eight turns of four windows; each turn of the others takes at most three seconds.
    assert 1 <= at <= 2 * 8 + 4
    assert len(scoring.result()) == 31 * TAGS * 4


async def test_no_request_is_lost_when_sharing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is the worker's next request because the step has no room, which it has a moment later."""
    engine, samples = Ordered(), np.full(RATE, 3 / 64, np.float32)
    async with working(engine) as workers:
        [place] = workers._shared
        running = asyncio.create_task(session(workers, engine).take([level(1, 2.9)], 2.9))
        await asyncio.to_thread(engine.begun.wait, 10)
        shared = iter([True, True])
        monkeypatch.setattr(place._sharing, "is_shared", lambda now: next(shared, False))
        step = asyncio.create_task(session(workers, engine).take([level(2)], 0.5))
        await until(lambda: place.count == 1)
        scoring = asyncio.create_task(workers.score("p", segment(engine, samples), samples))
        await until(lambda: place.count == 0)
        engine.gate.set()
        async with asyncio.timeout(10):
            await asyncio.gather(running, step, scoring)
    assert [engine.order.count(one) for one in (2, 3)] == [1, 1]


@pytest.mark.parametrize("kind", ["steps", "segments"])
async def test_exclusive_request_waits_only_for_running_work(kind: str) -> None:
    """However many live streams and recordings there are besides."""
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


async def test_sessions_are_spread_over_workers() -> None:
    engine = Fingerprint()
    async with working(engine, count=3) as workers:
        for _ in range(9):
            await session(workers, engine).take([sound(0.1)], 0.1)
        assert [len(process.sessions) for process in workers.processes()] == [3, 3, 3]


def owners(workers: Workers) -> list[str]:
    return sorted(place.owner for place in workers.places() if place.owner is not None and place.process is not None)


async def test_owned_workers_serve_one_project_and_are_bounded(
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
        # A busy worker does not end.
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


async def test_projects_share_limited_owned_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However much they have to do: workers move from one to the next, and their limit holds."""
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


async def test_idle_owned_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_worker_is_renewed_for_new_model() -> None:
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


async def test_worker_forked_before_model_was_loaded_is_renewed() -> None:
    """Even if its start ends after the model's first request: that one would wait for ten seconds."""
    engine, later = Fingerprint(), Fingerprint(name="later")
    engines = [engine]
    threads, forked, gate = WorkerThreads(lambda: list(engines)), threading.Event(), threading.Event()

    def fork() -> tuple[socket.socket, int]:
        ends = threads.fork()
        forked.set()
        assert gate.wait(60)
        return ends

    workers = Workers(1, fork)
    await workers.start()
    await asyncio.to_thread(forked.wait, 60)
    engines.append(later)
    step = asyncio.create_task(session(workers, later).take([sound(1)], 1.0))
    await turn()
    gate.set()
    assert (await step).packed == truth(sound(1))
    await workers.stop()


async def test_sessions_wait_for_model_that_no_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their attempts do not renew the worker of others each time."""
    engine, later = Fingerprint(), Fingerprint(name="later")
    engines = [engine]
    threads = WorkerThreads(lambda: list(engines))
    workers = Workers(1, threads.fork)
    await workers.start()
    await until(workers.processes)
    for _ in range(3):
        with pytest.raises(ModelMissing, match="do not have the model later"):
            await session(workers, later).take([sound(1)], 1.0)
    assert len(threads.lines) == 2
    first = session(workers, engine)
    assert (await first.take([sound(1)], 1.0)).packed == truth(sound(1))
    engines.append(later)
    monkeypatch.setattr(module, "MISSING_SECONDS", 0.0)
    assert (await session(workers, later).take([sound(1)], 1.0)).packed == truth(sound(1))
    await workers.stop()


async def test_renewals_do_not_count_as_deaths() -> None:
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
