"""Senders take turns while the loop is busy."""

import asyncio

import pytest

from infra.service.loop_turns import ALONE, HELD_BYTES, SHARED, LoopTurns


async def iterate() -> None:
    await asyncio.sleep(0)


async def handled(turns: LoopTurns, senders: list[str]) -> list[list[str]]:
    """Return whose input each iteration of the loop handles, if all of it arrives at once."""
    iterations: list[list[str]] = [[]]
    for sender in senders:
        if turns.take(sender, 100.0, 1):
            iterations[-1].append(sender)
        else:
            turns.wait(sender, 1, lambda sender=sender: iterations[-1].append(sender))  # type: ignore[misc]
    while sum(map(len, iterations)) < len(senders):
        iterations.append([])
        await iterate()
    return [iteration for iteration in iterations if iteration]


@pytest.mark.parametrize("senders", [["loud"] * 100 + ["quiet", "loud", "quiet"], ["loud"] * 9 + ["quiet"] * 2])
async def test_quiet_sender_does_not_wait_for_loud_one(senders: list[str]) -> None:
    turns = LoopTurns()
    await handled(turns, ["quiet", "loud"])
    await iterate()
    await iterate()
    iterations = await handled(turns, senders)
    order = [sender for iteration in iterations for sender in iteration]
    assert order.count("quiet") == 2
    assert order.index("quiet") < 4 * SHARED
    assert max(map(len, iterations)) <= 2 * SHARED


async def test_new_sender_ends_large_turns_of_the_only_one() -> None:
    turns = LoopTurns()
    turns.take("loud", 0.0, 1)
    await iterate()
    iterations = await handled(turns, ["loud"] * (ALONE + 9) + ["quiet"] + ["loud"] * 50)
    assert len(iterations[0]) == ALONE
    assert max(map(len, iterations[1:])) <= 2 * SHARED


async def test_new_connections_do_not_count_as_another_sender() -> None:
    iterations = await handled(LoopTurns(), ["", "loud"] * (ALONE // 2))
    assert len(iterations[0]) == ALONE


async def test_waiting_bytes_are_bounded() -> None:
    turns = LoopTurns()
    taken = [turns.take("loud", 0.0, HELD_BYTES) for _ in range(ALONE + 1)]
    turns.wait("loud", HELD_BYTES, lambda: None)
    assert taken == [True] * ALONE + [False]
    assert turns.take("loud", 0.0, 1)
