"""Processor time per item of a Faust agent, compared with a plain task on a plain queue."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from faust.types import StreamT

from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from streams.agents import NodeApp
from streams.sessions.ready import Place, ReadySessions

ITEMS: Final = 20_000
ACTORS: Final = 16
PROJECTS: Final = 8
#: Items that become ready in one iteration of the loop.
BURST: Final = 32
#: One session in this many is deleted before its turn; items never are.
DELETED: Final = 10
BAR_US: Final = 15.0


def measure(setup: Setup) -> Iterator[Row]:
    """Yield microseconds of processor time per item beyond a plain task's; an item stands for a session's step."""
    items = setup.size(ITEMS)
    asyncio.run(_agent(items)), asyncio.run(_plain(items))
    pairs = [(asyncio.run(_agent(items)), asyncio.run(_plain(items))) for _ in range(setup.pairs)]
    above = [ours - plain for ours, plain in pairs]
    beside = {"us": median(ours for ours, _ in pairs), "plain us": median(plain for _, plain in pairs)}
    yield value_row("an item through an agent", above, "us", BAR_US, beside)


async def _agent(items: int) -> float:
    """Return microseconds per item, with turns by project and with deletions."""
    app, done = NodeApp(), asyncio.Event()
    ready = ReadySessions(app, lambda session: Place(session[-1]))
    count = 0

    @app.agent(ready, name="step", concurrency=ACTORS)
    async def step(sessions: StreamT[list[str]]) -> None:
        nonlocal count
        async for [session] in sessions:
            ready.done(session, None)
            count += 1
            if count == items:
                done.set()

    await app.agents.start()
    began, added = time.process_time(), 0
    while added < items:
        for number in range(BURST):
            session = f"{added}-{number % PROJECTS}"
            ready.add(session)
            if number % DELETED == 0:
                ready.discard(session)
                ready.add(session)
            added += 1
        await asyncio.sleep(0)
    await done.wait()
    cpu = time.process_time() - began
    await app.agents.stop()
    return cpu / items * 1e6


async def _plain(items: int) -> float:
    """Return microseconds per item, taken from a queue by tasks."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    done = asyncio.Event()
    count = 0

    async def step() -> None:
        nonlocal count
        while True:
            await queue.get()
            count += 1
            if count == items:
                done.set()

    tasks = [asyncio.create_task(step()) for _ in range(ACTORS)]
    began, added = time.process_time(), 0
    while added < items:
        for number in range(BURST):
            queue.put_nowait(f"{added}-{number % PROJECTS}")
            added += 1
        await asyncio.sleep(0)
    await done.wait()
    cpu = time.process_time() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return cpu / items * 1e6
