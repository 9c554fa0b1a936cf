"""Work that requests make the loop do takes turns, in measured time; so does long work beside the loop."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from app.http import turns as loop_turns
from app.http.streaming import in_turn
from app.http.turns import ITERATION_SECONDS, LongWork, LoopTurns, Measured
from tests.waiting import until
from topics.turns import Holder

LOUD, QUIET = Holder("o", "loud"), Holder("other", "quiet")


class Clock:
    """Time that passes as work says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_turns, "perf_counter", clock)
    return clock


def test_iteration_does_bounded_work_and_customers_take_turns(clock: Clock) -> None:
    async def main() -> list[list[str]]:
        turns, iterations = LoopTurns(), [list[str]()]

        def work(name: str) -> None:
            iterations[-1].append(name)
            clock.now += ITERATION_SECONDS / 2

        for _ in range(20):
            turns.put(LOUD, partial(work, "loud"))
        turns.put(QUIET, partial(work, "quiet"))
        while sum(map(len, iterations)) < 21:
            iterations.append([])
            await asyncio.sleep(0)
        return [iteration for iteration in iterations if iteration]

    iterations = asyncio.run(main())
    assert max(map(len, iterations)) == 2
    assert "quiet" in iterations[0] + iterations[1]


def test_long_work_leaves_iterations_to_others(clock: Clock) -> None:
    """What took five times as long as an iteration may is followed by as many iterations that begin nothing."""

    async def main() -> int:
        turns, waited = LoopTurns(), 0
        assert turns.is_free()
        clock.now += 5 * ITERATION_SECONDS
        turns.spend(5 * ITERATION_SECONDS)
        assert not turns.is_free()
        done: list[int] = []
        turns.put(QUIET, partial(done.append, 1))
        while not done:
            waited += 1
            await asyncio.sleep(0)
        return waited

    assert 4 <= asyncio.run(main()) <= 6


def test_readers_of_one_project_do_not_delay_another(clock: Clock) -> None:
    """Fifty readers of a long answer: the piece of another project is made after at most two of theirs."""
    made: list[str] = []

    def pieces(name: str, number: int) -> Iterator[bytes]:
        for _ in range(number):
            made.append(name)
            clock.now += ITERATION_SECONDS
            yield bytes(1 << 16)

    async def read(holder: Holder, number: int) -> None:
        async for _ in in_turn(turns, holder, pieces(holder.project, number)):
            await asyncio.sleep(0)

    async def main() -> None:
        loud = [asyncio.create_task(read(Holder("o", "loud", f"job {number}"), 20)) for number in range(50)]
        await until(lambda: len(made) >= 100)
        before = len(made)
        await read(QUIET, 1)
        assert made.index("quiet") - before <= 2
        for task in loud:
            task.cancel()
        await asyncio.gather(*loud, return_exceptions=True)

    turns = LoopTurns()
    asyncio.run(main())


async def test_errors_and_cancellations_of_turns() -> None:
    turns = LoopTurns()

    def fail() -> None:
        raise ValueError("as ever")

    with pytest.raises(ValueError, match="as ever"):
        await turns.run(LOUD, fail)
    called: list[int] = []
    task = asyncio.create_task(turns.run(LOUD, called.append, 1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await turns.run(LOUD, lambda: 5) == 5
    assert called == [] or called == [1]


async def test_time_of_a_coroutine_is_measured_step_by_step(clock: Clock) -> None:
    took: list[float] = []

    async def steps() -> str:
        for seconds in (1.0, 2.0):
            clock.now += seconds
            await asyncio.sleep(0)
        return "end"

    assert await Measured(steps().__await__(), took.append) == "end"
    assert took == [1.0, 2.0, 0.0]


async def test_long_work_takes_turns_by_organization() -> None:
    """One of three projects of an organization waits for its siblings, another organization for one of them."""
    places, order = LongWork(1), list[str]()

    async def work(holder: Holder) -> None:
        async with places.place(holder):
            order.append(holder.project)
            await asyncio.sleep(0.001)

    waiting = [work(Holder("o", project)) for project in "aaabbbccc"] + [work(Holder("other", "z"))]
    await asyncio.gather(*waiting)
    assert order.index("z") <= 2
    assert len(order) == 10


async def test_cancelled_wait_gives_its_place_on() -> None:
    places, held, end = LongWork(1), list[int](), asyncio.Event()

    async def hold(number: int) -> None:
        async with places.place(LOUD):
            held.append(number)
            await end.wait()

    tasks = [asyncio.create_task(hold(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert held == [0]
    tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.sleep(0)
    tasks[2].cancel()  # It was given the place, and has not begun.
    await until(lambda: held == [0, 3])
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_work_that_spends_is_followed_by_one_call_in_each_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """More calls would begin more work than an iteration may."""
    turns, iteration = LoopTurns(), 0
    called, go_on = list[int](), turns._next

    def counted() -> None:
        called.append(iteration)
        go_on()

    monkeypatch.setattr(turns, "_next", counted)
    turns.put(LOUD, partial(turns.spend, 5 * ITERATION_SECONDS))
    while len(called) < 5:
        await asyncio.sleep(0)
        iteration += 1
    assert called == sorted(set(called))
