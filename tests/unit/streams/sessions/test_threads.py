"""Work in threads for the event loop: its results and errors, what is cancelled, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from streams.sessions.threads import LoopThreads

from streams.sessions import threads as module
from tests.waiting import until


class Held:
    """A call that notes its name when it ends, which the test decides."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        self.begun, self.gate = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self.gate.wait(10)
        self.done.append("held")


@asynccontextmanager
async def running(count: int = 1) -> AsyncIterator[LoopThreads]:
    threads = LoopThreads(count, "test")
    threads.start()
    try:
        yield threads
    finally:
        await threads.stop()


async def test_results_and_errors_come_back() -> None:
    def work(number: int) -> int:
        if number % 10 == 3:
            raise ValueError(str(number))
        return number * number

    async with running(3) as threads:
        found = await asyncio.gather(*(threads.run("", work, number) for number in range(500)), return_exceptions=True)
    for number, answer in enumerate(found):
        assert str(answer) == (str(number) if number % 10 == 3 else str(number * number))
        assert isinstance(answer, ValueError) is (number % 10 == 3)


async def test_one_wake_up_reports_all_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    wakes = 0
    async with running() as threads:
        loop = asyncio.get_running_loop()
        call, done = loop.call_soon_threadsafe, threading.Event()

        def counted(*arguments: object) -> None:
            nonlocal wakes
            wakes += 1
            call(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        futures = [threads.run("", int) for _ in range(50)]
        last = threads.run("", done.set)
        # The loop stands still meanwhile.
        assert done.wait(10)
        await asyncio.gather(last, *futures)
    assert wakes <= 2


async def test_what_is_cancelled_before_its_turn_is_not_done() -> None:
    done: list[str] = []
    held = Held(done)
    async with running() as threads:
        first = threads.run("", held)
        second, third = (threads.run("", done.append, name) for name in ("second", "3"))
        await asyncio.to_thread(held.begun.wait, 10)
        # What runs already runs to its end, and nobody hears of it.
        first.cancel()
        second.cancel()
        held.gate.set()
        await third
    assert done == ["held", "3"]


async def test_stop_waits_for_what_runs_and_leaves_what_waits() -> None:
    done: list[str] = []
    held = Held(done)
    async with running() as threads:
        threads.run("", held)
        threads.run("", done.append, "waiting")
        await asyncio.to_thread(held.begun.wait, 10)
        stopping = asyncio.create_task(threads.stop())
        await asyncio.sleep(0)
        held.gate.set()
        await stopping
        assert done == ["held"]


async def test_jobs_for_the_same_are_done_together() -> None:
    together: list[list[int]] = []

    def halves(numbers: Sequence[int]) -> list[int | Exception]:
        together.append(list(numbers))
        return [ValueError(f"{number} is odd") if number % 2 else number // 2 for number in numbers]

    def fail(numbers: Sequence[int]) -> list[int | Exception]:
        raise RuntimeError(f"{len(numbers)} at once")

    gate = threading.Event()
    async with running() as threads:
        threads.run("", gate.wait, 10)
        calls: list[asyncio.Future[Any]] = [threads.run_together("", halves, number) for number in range(6)]
        calls += [threads.run("", str, "between"), threads.run_together("", halves, 6)]
        calls += [threads.run_together("", fail, number) for number in range(2)]
        calls[2].cancel()
        gate.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
    assert [repr(answer) for answer in found] == [
        "0", "ValueError('1 is odd')", "CancelledError('')", "ValueError('3 is odd')", "2", "ValueError('5 is odd')",
        "'between'", "3", "RuntimeError('2 at once')", "RuntimeError('2 at once')",
    ]  # fmt: skip
    assert together == [[0, 1, 3], [4, 5], [6]]


async def test_every_job_is_done_once_however_threads_share_them() -> None:
    done: list[int] = []

    def note(numbers: Sequence[int]) -> list[int | Exception]:
        done.extend(numbers)
        return list(numbers)

    async with running(4) as threads:
        found = await asyncio.gather(*(threads.run_together(str(n % 3), note, n) for n in range(2000)))
    assert found == list(range(2000))
    assert sorted(done) == list(range(2000))


def test_stop_without_a_start() -> None:
    asyncio.run(LoopThreads(2, "test").stop())


async def test_a_call_without_an_end_holds_up_neither_the_loop_nor_its_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.1)
    held = Held([])
    threads = LoopThreads(1, "test")
    threads.start()
    stuck = threads.run("", held)
    await until(held.begun.is_set)
    turns = 0
    stopping = asyncio.create_task(threads.stop())
    while not stopping.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 1
    stuck.cancel()
    held.gate.set()


async def test_projects_have_their_calls_made_in_turn() -> None:
    done: list[str] = []
    gate = threading.Event()
    async with running() as threads:
        first = threads.run("loud", gate.wait, 10)
        calls = [threads.run("loud", done.append, "loud") for _ in range(64)]
        calls += [threads.run("quiet", done.append, "quiet") for _ in range(2)]
        gate.set()
        await asyncio.gather(first, *calls)
    assert [place for place, name in enumerate(done) if name == "quiet"] in ([0, 2], [1, 3])
    assert len(done) == 66
