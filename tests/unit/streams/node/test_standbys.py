"""Tables of other nodes' partitions: opened, kept up, handed over, given back and closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from streams.log import Apply, StoredRecord
from streams.node.standbys import Standbys
from streams.tables.rows import APPLIED, Applied
from tests.unit.streams.node.logs import MemoryLog, MemoryNode
from topics.catalog import CHANGELOG, KEEP_TOMBSTONES_MS, TopicPartition

K, L = b"\x01k", b"\x01l"


class Follower:
    """Implements `ChangelogFollower`; hands on what the test says."""

    def __init__(self) -> None:
        self.starts: Mapping[TopicPartition, int] = {}
        self.apply: Apply = lambda tp, records: None

    def follow(self, starts: Mapping[TopicPartition, int], apply: Apply) -> None:
        self.starts, self.apply = dict(starts), apply

    @property
    def followed(self) -> dict[int, int]:
        return {tp.partition: offset for tp, offset in self.starts.items()}

    def come(self, number: int, *records: tuple[bytes, bytes | None]) -> None:
        """Let records of a partition come."""
        tp = TopicPartition(CHANGELOG, number)
        first = self.starts.get(tp, 0)
        self.apply(tp, [StoredRecord(first + at, 0, key, value, 1) for at, (key, value) in enumerate(records)])


class House:
    """The stand-bys of a node."""

    def __init__(self, directory: Path) -> None:
        log: Any = MemoryLog()
        self.follower = log.follower = Follower()
        self.node = MemoryNode(log, directory)
        self.standbys = Standbys(self.node.takeover, log)


@pytest.fixture
def house(tmp_path: Path, runner: asyncio.Runner) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    runner.run(house.standbys.stop())


def test_what_is_stood_by_for_is_followed_from_where_its_table_is(house: House) -> None:
    house.standbys.keep({1, 2})
    assert house.follower.followed == {1: 0, 2: 0}
    house.follower.come(1, (K, b"a"), (K, b"b"), (L, b"c"))
    house.standbys.keep({1, 3})
    assert house.follower.followed == {1: 3, 3: 0}


def test_a_stand_by_that_is_taken_over_has_what_came_and_gets_no_more_from_here(house: House) -> None:
    house.standbys.keep({1, 2})
    house.follower.come(1, (K, b"a"))
    rows = house.standbys.take(1)
    assert (rows.number, rows.get(K), rows.applied.offset) == (1, b"a", 1)
    assert house.follower.followed == {2: 0}
    house.follower.come(1, (K, b"too late"))
    assert rows.get(K) == b"a"
    rows.close()


def test_a_partition_that_was_not_stood_by_for_has_the_table_of_its_directory(house: House) -> None:
    rows = house.standbys.take(1)
    rows.write({K: b"v"})
    rows.close()
    again = house.standbys.take(1)
    assert again.get(K) == b"v"
    again.close()


def test_what_was_owned_is_stood_by_for_with_the_same_table(house: House) -> None:
    rows = house.standbys.take(1)
    rows.begin(4, 9)
    house.standbys.give(rows)
    house.standbys.keep({1})
    assert (rows.epoch, house.follower.followed) == (0, {1: 9})
    assert house.standbys.take(1) is rows
    rows.close()


def test_a_takeover_that_was_broken_off_may_have_come_further_than_what_is_followed(house: House) -> None:
    """What comes twice is not taken for another log: a table made anew from here on would lack what came before."""
    house.standbys.keep({1})
    house.follower.come(1, (K, b"a"), (L, b"b"))
    rows = house.standbys.take(1)
    house.standbys.give(rows)
    house.standbys.keep({1})
    further = [StoredRecord(2, 0, L, b"c", 1), StoredRecord(3, 0, L, b"d", 1)]
    rows.apply(further)
    with capture_logs() as lines:
        house.follower.apply(TopicPartition(CHANGELOG, 1), further[:1])
        house.follower.apply(TopicPartition(CHANGELOG, 1), [further[1], StoredRecord(4, 0, L, b"e", 1)])
    assert "table.wiped" not in {line["event"] for line in lines}
    rows = house.standbys.take(1)
    assert (rows.get(K), rows.get(L), rows.applied.offset) == (b"a", b"e", 5)
    rows.close()


def test_a_table_of_another_log_is_made_anew_from_its_beginning(house: House) -> None:
    house.standbys.keep({1})
    house.follower.come(1, (K, b"a"), (L, b"b"))
    house.follower.come(1, (L, b"c"))
    rows = house.standbys.take(1)
    assert (rows.get(K), rows.get(L)) == (None, b"c")
    rows.close()


def test_what_was_owned_and_is_not_stood_by_for_is_closed(house: House) -> None:
    rows = house.standbys.take(1)
    house.standbys.give(rows)
    house.standbys.keep(frozenset())
    assert house.follower.followed == {}
    house.standbys.take(1).close()  # The directory's lock is free.


def test_a_stand_by_that_cannot_be_opened_costs_nothing_else(house: House) -> None:
    held = house.standbys.take(1)
    with capture_logs() as lines:
        house.standbys.keep({1, 2})
    assert [line["partition"] for line in lines if line["event"] == "standby.none"] == [1]
    assert house.follower.followed == {2: 0}
    held.close()
    house.standbys.keep({1, 2})
    assert house.follower.followed == {1: 0, 2: 0}


async def test_a_log_of_one_process_has_nobody_to_stand_by_for(tmp_path: Path) -> None:
    log: Any = MemoryLog()
    node = MemoryNode(log, tmp_path, shared=False)
    standbys = Standbys(node.takeover, log)
    rows = standbys.take(0)
    standbys.give(rows)
    await standbys.stop()
    node.takeover.open(0).close()


def test_a_table_that_is_older_than_the_tombstones_is_not_brought_up(house: House) -> None:
    """It would be fresh by its own word at the takeover, with sessions that were deleted while the node was away."""
    database = house.node.takeover._databases.open(1).rocks
    database[K] = b"deleted long ago"
    database[APPLIED] = msgspec.msgpack.encode(Applied(7, 1, int(time.time() * 1000) - KEEP_TOMBSTONES_MS))
    database.close()
    house.standbys.keep({1})
    assert house.follower.followed == {1: 0}
    house.follower.come(1, (L, b"v"))
    rows = house.standbys.take(1)
    assert (rows.get(K), rows.get(L)) == (None, b"v")
    rows.close()
