"""Room for parts: in turn by project, in order within one, and never lost by who gives up."""

from __future__ import annotations

import asyncio
import random

import pytest

from streams.node.part_room import PartRoom
from topics.errors import Unavailable


async def test_projects_are_let_in_in_turn() -> None:
    room, order = PartRoom(10), []
    deadline = asyncio.get_running_loop().time() + 10
    await room.enter("loud", 10, deadline)

    async def enter(project: str) -> None:
        await room.enter(project, 10, deadline)
        order.append(project)
        room.leave(10)

    tasks = [asyncio.create_task(enter("loud")) for _ in range(64)]
    tasks += [asyncio.create_task(enter("quiet")) for _ in range(2)]
    await asyncio.sleep(0)
    room.leave(10)
    await asyncio.gather(*tasks)
    order = order
    # The one that was next when the quiet project came, then turns.
    assert order[:5] == ["loud", "loud", "quiet", "loud", "quiet"] or order[:4] == ["loud", "quiet", "loud", "quiet"]


async def test_nothing_of_a_project_overtakes_what_waits() -> None:
    room, order = PartRoom(10), []
    deadline = asyncio.get_running_loop().time() + 10
    await room.enter("p", 10, deadline)

    async def enter(number: int, size: int) -> None:
        await room.enter("p", size, deadline)
        order.append(number)

    # An acceptance has no size, and waits for the parts before it.
    tasks = [asyncio.create_task(enter(number, size)) for number, size in enumerate((6, 3, 0))]
    await asyncio.sleep(0.01)
    assert order == []
    room.leave(10)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]


@pytest.mark.parametrize("seed", range(5))
async def test_whoever_gives_up_room_is_not_lost_and_never_too_much_is_given(seed: int) -> None:
    chance = random.Random(seed)
    room, used = PartRoom(10), 0
    loop = asyncio.get_running_loop()

    async def enter() -> None:
        nonlocal used
        size = chance.randrange(1, 12)
        try:
            await room.enter(chance.choice("abc"), size, loop.time() + chance.choice((0.001, 5)))
        except Unavailable:
            return
        used += size
        assert used <= 10 or used == size
        try:
            await asyncio.sleep(chance.random() / 1000)
        finally:
            used -= size
            room.leave(size)

    tasks = [asyncio.create_task(enter()) for _ in range(100)]
    for task in chance.sample(tasks, 30):
        await asyncio.sleep(chance.random() / 1000)
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends if end is not None} <= {asyncio.CancelledError}
    # All of it is there again.
    await room.enter("d", 10, loop.time() + 1)
