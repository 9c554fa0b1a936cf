"""The order of requests and their workers: turns by project, exclusive requests, workers of one project."""

import asyncio
import math
import socket
import threading
from collections import Counter
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from streams.processes.deaths import DEATHS
from streams.workers import messages, worker_slot
from streams.workers import workers as module
from streams.workers.process import FIRST_COST, ModelMissing, StateLost
from streams.workers.workers import Workers
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.engines import Gated
from tests.unit.streams.sessions.studio import sound, truth
from tests.unit.streams.workers.asking import Ordered, asked, level, of_file, session, take
from tests.unit.streams.workers.double import WorkerThreads, working
from tests.waiting import turn, until

# --- turns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
async def test_steps_of_projects_take_turns(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    monkeypatch.setattr(module, "SHARED_SECONDS", math.inf)
    engine = Ordered()
    async with working(engine) as workers:
        if known:
            engine.gate.set()
            for name in ("quiet", "loud"):
                await take(session(workers, engine, name), level(3, 2), seconds=2.0)
            engine.gate.clear()
            engine.begun.clear()
            engine.order.clear()
        steps = [asked(session(workers, engine, "loud"), level(1, 2), seconds=2.0) for _ in range(12)]
        await asyncio.to_thread(engine.begun.wait, 60)
        steps += [asked(session(workers, engine, "quiet"), level(2, 2), seconds=2.0) for _ in range(2)]
        # What a worker of one project has in work is all that a new project waits for.
        running = 1 if known else int(worker_slot.ALONE_IN_WORK / FIRST_COST / 2)
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
    monkeypatch.setattr(module, "SHARED_SECONDS", math.inf)
    engine = Ordered()
    async with working(engine) as workers:
        [process] = workers.processes()
        process.cost = cost
        steps = [asked(session(workers, engine, project), level(1)) for project in ("one", "two") * 10]
        await until(lambda: workers._shared[0].count == 20 - in_work)
        await turn()
        assert len(process) == in_work
        engine.gate.set()
        await asyncio.gather(*steps)


async def test_exclusive_request_waits_only_for_running_work() -> None:
    """However many live streams there are besides."""
    engine = Ordered()
    met: list[int] = []

    async with working(engine) as workers:
        process = workers.processes()[0]
        running = True

        async def live() -> None:
            analysed = session(workers, engine, "live")
            while running:
                await take(analysed, level(1), seconds=0.5)

        crowd = [asyncio.create_task(live()) for _ in range(8)]
        await asyncio.to_thread(engine.begun.wait, 60)
        send = process.send

        def noted(call: object) -> None:
            met.append(len(process))
            send(call)  # type: ignore[arg-type]
            if call.alone:  # type: ignore[attr-defined]
                met.append(-1)

        process.send = noted  # type: ignore[method-assign]
        suspect = asked(session(workers, engine, "p"), level(2), alone=True)
        engine.gate.set()
        await asyncio.wait_for(suspect, 60)
        running = False
        await asyncio.gather(*crowd)
    at = met.index(-1)
    assert met[at - 1] == 0, "it was alone when it came"
    assert met[at + 1] == 0, "and until it was done"
    assert at <= 2 * messages.SLOTS


async def test_files_of_projects_take_turns(tmp_path: Path) -> None:
    """As many are in work as there are shared workers, and a file of a quiet project waits for one of the loud one."""
    engine = Ordered()
    async with working(engine) as workers:

        async def analyse(project: str, number: int) -> None:
            path = tmp_path / f"{project}{number}"
            path.write_bytes(level(1 if project == "loud" else 2, 2))
            analysed, slot = of_file(workers, engine, path, project)
            scores = await take(analysed, seconds=0.0)
            assert not scores.reading
            assert len(scores.packed) == 3 * TAGS
            workers.close_slot(slot)

        files = [asyncio.create_task(analyse("loud", number)) for number in range(6)]
        await asyncio.to_thread(engine.begun.wait, 60)
        files.append(asyncio.create_task(analyse("quiet", 0)))
        await turn()
        assert sum(len(process) for process in workers.processes()) == 1
        engine.gate.set()
        await asyncio.gather(*files)
        assert len(workers.slots()) == 1
    assert engine.order.index(2) <= 2 * 3


async def test_live_audio_does_not_wait_for_a_file(tmp_path: Path) -> None:
    engine, blocked = Fingerprint(), Gated()
    path = tmp_path / "file"
    path.write_bytes(sound(1))

    def fork(file: int | None) -> tuple[socket.socket, int]:
        ends = WorkerThreads(lambda: [engine if file is None else blocked])
        return ends.fork(file)

    async with working(fork=fork) as workers:
        step = asked(of_file(workers, engine, path)[0], seconds=0.0)
        await asyncio.to_thread(blocked.begun.wait, 10)
        assert (await take(session(workers, engine), sound(1))).packed == truth(sound(1))
        assert not step.done()
        blocked.gate.set()
        assert (await step).packed == truth(sound(1))


# --- slots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "spread"), [(0.1, [9, 0, 0]), (0.9, [3, 3, 3])])
async def test_sessions_are_spread_over_busy_workers(load: float, spread: list[int]) -> None:
    """A worker with little to do gets all: each that wakes up costs as much as a step."""
    engine = Fingerprint()
    async with working(engine, count=3) as workers:
        for process in workers.processes():
            process.load = load
        for _ in range(9):
            await take(session(workers, engine), sound(0.1), seconds=0.1)
        assert [len(process.sessions) for process in workers.processes()] == spread


async def test_sessions_that_come_at_once_are_spread() -> None:
    engine = Gated()
    async with working(engine, count=2) as workers:
        sessions = [session(workers, engine) for _ in range(8)]
        steps = [asked(one, sound(2), seconds=2.0) for one in sessions]
        await until(lambda: sum(slot.load[0] for slot in workers.slots()) == 8)
        assert [slot.load[0] for slot in workers.slots()] == [4, 4]
        engine.gate.set()
        await asyncio.gather(*steps)


def owners(workers: Workers) -> list[str]:
    return sorted(slot.owner for slot in workers.slots() if slot.owner is not None and slot.process is not None)


async def test_owned_workers_serve_one_project_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OWNED", 3)
    engine = Gated()
    engine.gate.set()
    async with working(engine) as workers:
        sessions = {name: session(workers, engine, name, owned=True) for name in "abcde"}
        for name in "abc":
            await take(sessions[name], sound(1))
        assert len({slot.process for slot in workers._owned.values()}) == 3
        await take(sessions["a"], sound(1))
        # A busy worker does not end.
        engine.gate.clear()
        busy = asked(sessions["b"], sound(1))
        new = asked(sessions["d"], sound(1))
        await until(lambda: "d" in owners(workers))
        engine.gate.set()
        await asyncio.gather(busy, new)
        assert owners(workers) == ["a", "b", "d"]
        with pytest.raises(StateLost):
            await take(sessions["c"], sound(1))
        assert (await take(session(workers, engine, "c", owned=True), sound(1))).packed == truth(sound(1))
        assert len(owners(workers)) == 3
        assert workers.deaths == 0


async def test_projects_share_limited_owned_workers(monkeypatch: pytest.MonkeyPatch) -> None:
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
                    await take(session(workers, engine, name, owned=True), sound(1))
                    steps[name] += 1
                most = max(most, len(owners(workers)))

        async with asyncio.timeout(60):
            await asyncio.gather(*(greedy(name) for name in "abcde" for _ in range(2)))
        assert workers.deaths == 0
    assert most == 2


async def test_idle_owned_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    engine = Fingerprint()
    async with working(engine) as workers:
        analysed = session(workers, engine, "a", owned=True)
        assert (await take(analysed, sound(1))).packed == truth(sound(1))
        await until(lambda: len(workers.slots()) == 1)
        with pytest.raises(StateLost):
            await take(analysed, sound(1))
        assert (await take(session(workers, engine, "a", owned=True), sound(1))).packed == truth(sound(1))


async def test_worker_is_renewed_for_new_model() -> None:
    engine, later = Fingerprint(), Fingerprint(name="later")
    engines = [engine]
    threads = WorkerThreads(lambda: list(engines))
    async with working(fork=threads.fork) as workers:
        first = session(workers, engine)
        assert (await take(first, sound(1))).packed == truth(sound(1))
        engines.append(later)
        assert (await take(session(workers, later), sound(1))).packed == truth(sound(1))
        with pytest.raises(StateLost):
            await take(first, sound(1))
        again = session(workers, engine)
        assert (await take(again, sound(2), seconds=2.0)).packed == truth(sound(2))
        assert (await take(session(workers, later), sound(1))).packed == truth(sound(1))
        assert len(threads.lines) == 2
        assert workers.deaths == 0


async def test_worker_forked_before_model_was_loaded_is_renewed() -> None:
    """Even if its start ends after the model's first request: that one would wait for ten seconds."""
    engine, later = Fingerprint(), Fingerprint(name="later")
    engines = [engine]
    threads, forked, gate = WorkerThreads(lambda: list(engines)), threading.Event(), threading.Event()

    def fork(file: int | None) -> tuple[socket.socket, int]:
        ends = threads.fork()
        forked.set()
        assert gate.wait(60)
        return ends

    async with working(fork=fork) as workers:
        await asyncio.to_thread(forked.wait, 60)
        engines.append(later)
        step = asked(session(workers, later), sound(1))
        await turn()
        gate.set()
        assert (await step).packed == truth(sound(1))


async def test_sessions_wait_for_model_that_no_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their attempts do not renew the worker of others each time."""
    engine, later = Fingerprint(), Fingerprint(name="later")
    engines = [engine]
    threads = WorkerThreads(lambda: list(engines))
    async with working(fork=threads.fork) as workers:
        await until(workers.processes)
        for _ in range(3):
            with pytest.raises(ModelMissing, match="do not have the model later"):
                await take(session(workers, later), sound(1))
        assert len(threads.lines) == 2
        first = session(workers, engine)
        assert (await take(first, sound(1))).packed == truth(sound(1))
        engines.append(later)
        monkeypatch.setattr(module, "MISSING_SECONDS", 0.0)
        assert (await take(session(workers, later), sound(1))).packed == truth(sound(1))


async def test_renewals_do_not_count_as_deaths(tmp_path: Path) -> None:
    engine = Gated()
    engines: list[Fingerprint] = [engine]
    async with working(fork=WorkerThreads(lambda: list(engines)).fork) as workers:
        first = session(workers, engine)
        step = asked(first, sound(1))
        for number in range(DEATHS + 1):
            await asyncio.to_thread(engine.begun.wait, 60)
            engine.begun.clear()
            engines.append(Fingerprint(name=f"later{number}"))
            await take(session(workers, engines[-1]), sound(0.1), seconds=0.1)
            with pytest.raises(StateLost):
                await step
            step = asked(session(workers, engine), sound(1))
        engine.gate.set()
        assert (await step).packed == truth(sound(1))
        assert workers.deaths == 0
