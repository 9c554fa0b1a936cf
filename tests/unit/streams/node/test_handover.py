"""A node that stops gives its partitions to other nodes first; commands in flight get their verdicts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from streams.folding.awaited_verdicts import VerdictCall
from streams.node import handover as module
from tests.unit.streams.node.logs import MemoryLog
from tests.unit.streams.node.members import PARTITIONS, Shareholder
from tests.waiting import turn, until
from topics import keys
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import Unavailable
from topics.folding import Answer

HERE, THERE = "http://here", "http://there"
ELSEWHERE = dict.fromkeys(range(PARTITIONS), THERE)
SESSION = keys.new_id(2, PARTITIONS)


@pytest.fixture
def holder(tmp_path: Path, loop: asyncio.Runner) -> Iterator[Shareholder]:
    """A running node with partition 2; another node has the others."""

    async def begin() -> None:
        await running.__aenter__()
        holder.assign(2, urls={0: THERE, 1: THERE, 2: HERE, 3: THERE})
        await until(lambda: holder.serving() == [2])

    holder = Shareholder(MemoryLog(), tmp_path)
    running = holder.running()
    loop.run(begin())
    yield holder
    loop.run(running.__aexit__(None, None, None))


async def test_partitions_are_served_until_others_have_them(holder: Shareholder) -> None:
    owners = holder.owners
    leaving = asyncio.create_task(holder.partitions.hand_over())
    await asyncio.wait_for(holder.member.leaves.wait(), 60)
    assert (holder.serving(), owners.host()) == ([2], THERE), "new ones go elsewhere"
    changed = asyncio.create_task(owners.changed())
    await turn()
    holder.assign(urls=ELSEWHERE)
    assert await leaving
    await asyncio.wait_for(changed, 60)
    assert (owners.here, holder.work.lost[:1], owners.url(SESSION)) == ({}, [2], THERE)


async def test_positions_are_noted_before(holder: Shareholder) -> None:
    owner = holder.owners.here[2]
    noted, owner.noted = holder.log.end(TopicPartition(CHANGELOG, 2)), None
    leaving = asyncio.create_task(holder.partitions.hand_over())
    await asyncio.wait_for(holder.member.leaves.wait(), 60)
    assert holder.log.end(TopicPartition(CHANGELOG, 2)) > noted
    leaving.cancel()


async def test_node_whose_partitions_nobody_takes_stops(holder: Shareholder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVE_SECONDS", 0.05)
    assert not await holder.partitions.hand_over()
    leaving = asyncio.create_task(holder.partitions.hand_over())
    await turn()
    holder.assign()
    assert not await leaving, "all others stop too"


async def test_node_alone_keeps_its_partitions(holder: Shareholder) -> None:
    await holder.serve(*range(PARTITIONS))
    assert not await holder.partitions.hand_over()
    assert not holder.member.leaves.is_set()


# --- commands in flight ---------------------------------------------------------------------------------------------


async def test_commands_in_flight_get_their_verdicts_before_partition_goes(holder: Shareholder) -> None:
    owner, answers = holder.owners.here[2], list[Answer]()
    owner.awaited.add(call := VerdictCall(answers.append))
    holder.assign(0, urls=ELSEWHERE)
    await asyncio.sleep(0.05)
    assert (answers, holder.owners.here) == ([], {2: owner})
    assert holder.owners.is_moving(SESSION), "new ones wait"
    with pytest.raises(Unavailable, match="the verdicts of its last commands"):
        holder.owners.serving(SESSION)
    owner.awaited.discard(call)
    await until(lambda: holder.serving() == [0])
    assert (owner.closed, holder.owners.url(SESSION)) == (True, THERE)


async def test_command_without_verdict_in_time_may_still_succeed(
    holder: Shareholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VERDICT_SECONDS", 0.05)
    answers = list[Answer]()
    holder.owners.here[2].awaited.add(VerdictCall(answers.append))
    holder.assign(urls=ELSEWHERE)
    await until(lambda: not holder.owners.here)
    (answer,) = answers
    assert isinstance(answer, Unavailable)
    assert answer.uncertain


async def test_partition_that_comes_back_meanwhile_is_taken_over_again(holder: Shareholder) -> None:
    first = holder.owners.here[2]
    first.awaited.add(VerdictCall(lambda answer: None))
    holder.assign(urls=ELSEWHERE)
    await holder.serve(2)
    assert (first.closed, holder.owners.here[2] is first) == (True, False)


async def test_assignment_that_waits_ends_with_the_membership(holder: Shareholder) -> None:
    holder.owners.here[2].awaited.add(VerdictCall(lambda answer: None))
    holder.assign(0, urls=ELSEWHERE)
    holder.partitions.lose_all("no heartbeat")
    await asyncio.sleep(0.05)
    assert not holder.owners.here


async def test_node_asks_for_partitions_that_are_coming_once_their_tables_are_ready(holder: Shareholder) -> None:
    behind = {0}
    with mock.patch.object(holder.partitions.standbys, "behind", return_value=behind):
        holder.assign(2, standbys=[0, 1], urls=ELSEWHERE, coming=[0])
        await asyncio.sleep(0.05)
        assert not holder.member.ready
        behind.clear()
        await until(lambda: holder.member.ready)
        await asyncio.sleep(0.05)
    assert holder.member.ready == [{0}]
