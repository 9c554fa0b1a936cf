"""Which owner serves an id, how long requests wait for it, and where new ids are placed."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from streams.node import owner as module
from streams.node.owner import PartitionOwner, waits
from streams.node.owners import FULL, Owners
from streams.node.partition_consumer import PartitionConsumer
from tests.unit.streams.sessions.rows import MemoryPartition
from tests.unit.streams.verdicts import awaited
from tests.waiting import turn
from topics import keys
from topics.catalog import COMMANDS, JOB_COMMANDS, JOB_RESULTS, TopicPartition
from topics.errors import NotOwned, Unavailable
from topics.folding import Verdict

PARTITIONS = 4


class Rows(MemoryPartition):
    """The rows of a partition with recorded positions."""

    def positions(self) -> dict[str, int]:
        return {COMMANDS: 10, JOB_COMMANDS: 20, JOB_RESULTS: 30}

    def thaw(self) -> None: ...


def owner(number: int, *, serving: bool = True) -> PartitionOwner:
    rows: Any = Rows(number)
    made = PartitionOwner(number)
    made.take_rows(rows)
    made.durable = rows.positions()
    if serving:
        made.serve()
    return made


def test_owner_without_its_table_needs_nothing_that_it_knows() -> None:
    coming = PartitionOwner(1)
    assert coming.floor(COMMANDS) is None
    assert coming.needed(COMMANDS, 0, 9, None) == []


def owners(*here: PartitionOwner) -> Owners:
    made = Owners(PARTITIONS)
    made.here.update((one.number, one) for one in here)
    return made


def in_partition(number: int) -> str:
    return keys.new_id(number, PARTITIONS)


# --- serving owners -------------------------------------------------------------------------------------------------


def test_id_is_served_by_owner_of_its_partition_or_another_node() -> None:
    one, two = owner(1), owner(2)
    made = owners(one, two)
    assert [made.serving(in_partition(number)) for number in (1, 2)] == [one, two]
    assert made.all_serving() == [one, two]
    made.elsewhere = {0: "http://there:1", 1: "http://old:1"}
    with pytest.raises(NotOwned, match="partition 0 is another node's"):
        made.serving(in_partition(0))
    urls = [made.url(in_partition(number)) for number in range(PARTITIONS)]
    assert urls == ["http://there:1", None, None, None]


def test_waiting_owner_reports_reason() -> None:
    waiting, stopped = owner(1, serving=False), owner(2, serving=False)
    stopped.stopped = "20 of 21 records cannot be read"
    made = owners(owner(0), waiting, stopped)
    with pytest.raises(Unavailable, match="partition 1 has no ready owner here: its table"):
        made.serving(in_partition(1))
    with pytest.raises(Unavailable, match="partition 2 has no ready owner here: 20 of 21 records cannot be read"):
        made.serving(in_partition(2))
    assert waits(made) == "partition 1: its table", "nothing waits for a stopped one"
    assert [one.number for one in made.all_serving()] == [0]
    assert waits([owner(number, serving=False) for number in range(12)]) == (
        "partition 0, 1, 2, 3, 4, 5, 6, 7 and 4 more: its table"
    )
    assert waits([owner(0)]) is None


def test_node_shows_and_serves_only_what_its_leases_allow() -> None:
    may_read = may_append = True
    made = Owners(PARTITIONS, lambda: may_append, lambda: may_read)
    made.here[1] = owner(1)
    assert made.for_reading(in_partition(1)) is made.here[1]
    assert made.all_for_reading() == [made.here[1]]
    assert made.coverage().here == {1}
    may_read = False
    for read in (lambda: made.for_reading(in_partition(1)), made.all_for_reading):
        with pytest.raises(Unavailable, match="may be outdated") as refused:
            read()
        assert refused.value.retry_after == 1
    assert not made.coverage().here
    assert made.serving(in_partition(1)) is made.here[1]
    with pytest.raises(NotOwned):
        made.for_reading(in_partition(2))
    may_append = False
    with pytest.raises(Unavailable, match="may have lost its partitions"):
        made.serving(in_partition(1))


# --- waiting --------------------------------------------------------------------------------------------------------


def test_partition_moves_until_it_is_served_here_or_known_elsewhere() -> None:
    one, stopped = owner(1, serving=False), owner(2, serving=False)
    stopped.stopped = "20 of 21 records cannot be read"
    made = owners(owner(0), one, stopped)
    assert [made.is_moving(in_partition(number)) for number in range(PARTITIONS)] == [False, True, False, True]
    one.serve()
    made.elsewhere = {3: "http://there:1"}
    assert not any(made.is_moving(in_partition(number)) for number in range(PARTITIONS))


async def test_each_change_of_owners_is_reported() -> None:
    made = owners(owner(1))
    for _ in range(2):
        waiting = asyncio.create_task(made.changed())
        await turn()
        assert not waiting.done()
        made.note_change()
        await asyncio.wait_for(waiting, 60)


async def test_close_fails_awaited_verdicts_and_closes_lanes() -> None:
    one, consumer = owner(1), PartitionConsumer(TopicPartition(COMMANDS, 1), 0, *cast(Any, [None] * 4))
    one.consumers[COMMANDS] = consumer
    pending: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
    one.awaited.add(awaited(pending))
    one.close("partition 1 is not here any more")
    with pytest.raises(Unavailable, match="not here any more") as lost:
        await pending
    assert lost.value.uncertain
    assert (one.closed, one.serving, one.awaited, consumer.closed) == (True, False, set(), True)


# --- placement ------------------------------------------------------------------------------------------------------


def placed(made: Owners, count: int) -> Counter[int]:
    return Counter(made.number(made.new_id()) for _ in range(count))


def test_new_ids_fill_one_partition_after_another_and_then_the_emptiest(monkeypatch: pytest.MonkeyPatch) -> None:
    made = owners(*map(owner, range(PARTITIONS)))
    for number in range(PARTITIONS):
        assert placed(made, FULL) == {number: FULL}
    counts = placed(made, 4 * 10)
    assert all(8 <= counts[number] <= 12 for number in range(PARTITIONS))
    monkeypatch.setattr(made.here[2], "live", lambda: 0)
    assert placed(made, 3) == {2: 3}


def test_new_ids_prefer_most_active_partition() -> None:
    made = owners(*map(owner, range(PARTITIONS)))
    for _ in range(3):
        made.here[3].touch(in_partition(3))
    assert placed(made, 10) == {3: 10}


def test_new_ids_go_only_to_serving_partitions() -> None:
    assert placed(owners(owner(0, serving=False), owner(2)), 3) == {2: 3}
    with pytest.raises(Unavailable, match="serves no partition"):
        owners(owner(0, serving=False)).new_id()
    with pytest.raises(Unavailable, match="has no partitions yet"):
        owners().new_id()


def test_inactive_ids_are_not_counted_as_live(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("streams.node.owner.time.monotonic", lambda: now)
    one = owner(1)
    assert one.live() == 0
    for number in range(5):
        one.touch(f"{number}")
        one.touch(f"{number}")
    assert one.live() == 5
    now += module.LIVE_SECONDS + 1
    one.live()
    one.touch("5")
    assert one.live() == 5
    for expected in (1, 0):
        now += module.LIVE_SECONDS + 1
        assert one.live() == expected


# --- releasable records ---------------------------------------------------------------------------------------------


def test_floor_is_lowest_of_position_and_needed_audio() -> None:
    one = owner(1, serving=False)
    assert one.floor(COMMANDS) is None
    one.serve()
    assert [one.floor(topic) for topic in (COMMANDS, JOB_COMMANDS, JOB_RESULTS, "other")] == [10, 20, 30, None]
    one.sessions.references.add(7)
    one.jobs.references.add(99)
    assert [one.floor(topic) for topic in (COMMANDS, JOB_COMMANDS, JOB_RESULTS)] == [7, 20, 30]
    one.close("gone")
    assert one.floor(COMMANDS) is None
