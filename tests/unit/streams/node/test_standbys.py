"""Tables of other nodes' partitions: opened, maintained, handed over, returned, repaired and closed."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from streams.disk import DatabaseFailed, DiskFull
from streams.log import Apply, StoredRecord
from streams.node import standbys as module
from streams.node.standbys import Standbys
from streams.tables.database import TableDatabase
from streams.tables.partition_rows import APPLIED, Applied, PartitionRows
from tests.unit.streams.node.logs import MemoryLog, MemoryNode
from tests.waiting import until
from topics.catalog import CHANGELOG, KEEP_TOMBSTONES_MS, TopicPartition

K, L = b"\x01k", b"\x01l"


class Follower:
    """A `ChangelogFollower` that delivers the test's records."""

    def __init__(self) -> None:
        self.starts: Mapping[TopicPartition, int] = {}
        self.apply: Apply = lambda tp, records: None

    def follow(self, starts: Mapping[TopicPartition, int], apply: Apply) -> None:
        self.starts, self.apply = dict(starts), apply

    def behind(self) -> Collection[TopicPartition]:
        return [tp for tp, start in self.starts.items() if start == 0]

    @property
    def followed(self) -> dict[int, int]:
        return {tp.partition: offset for tp, offset in self.starts.items()}

    def come(self, number: int, *records: tuple[bytes, bytes | None], first: int | None = None) -> None:
        """Deliver records of a partition."""
        tp = TopicPartition(CHANGELOG, number)
        first = self.starts.get(tp, 0) if first is None else first
        self.apply(tp, [StoredRecord(first + at, 0, key, value, 1) for at, (key, value) in enumerate(records)])


class House:
    """The stand-bys of a node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: Any = MemoryLog()
        self.follower = Follower()
        self.node = MemoryNode(self.log, directory)
        self.standbys = Standbys(self.node.tables, self.follower)

    async def keep(self, *numbers: int, owned: Collection[int] = ()) -> None:
        """Have these partitions followed."""
        self.standbys.assign(frozenset(numbers), frozenset(owned))
        await until(lambda: self.follower.followed.keys() == set(numbers))

    async def owned(self, number: int) -> PartitionRows:
        """Own a partition without a stand-by."""
        self.standbys.assign(self.follower.followed.keys(), {number})
        return await self.standbys.promote(number)

    def there(self) -> set[str]:
        return {path.stem for path in self.directory.glob("partitions/*.db")}

    async def start(self) -> None:
        self.running = asyncio.create_task(self.standbys.run())

    async def stop(self) -> None:
        assert not self.running.done()
        self.running.cancel()
        await self.standbys.stop()


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: asyncio.Runner) -> Iterator[House]:
    monkeypatch.setattr(module, "TEND_SECONDS", 0.005)
    house = House(tmp_path)
    loop.run(house.start())
    yield house
    loop.run(house.stop())


async def test_standby_is_followed_from_its_table_position(house: House) -> None:
    await house.keep(1, 2)
    assert house.follower.followed == {1: 0, 2: 0}
    house.follower.come(1, (K, b"a"), (K, b"b"), (L, b"c"))
    await house.keep(1, 3)
    assert house.follower.followed == {1: 3, 3: 0}
    house.follower.come(1, (K, b"d"), first=0)
    house.standbys.assign(frozenset({1, 4}), frozenset())
    fault = "its changelog begins again: it is of another log"
    assert house.standbys.places() == {1: (3, fault), 4: (0, "its table is not open")}


async def test_standbys_are_behind_until_each_table_is_open_and_at_the_end(house: House) -> None:
    assert not house.standbys.behind()
    await house.keep(1)
    assert house.standbys.behind() == {1}, "it begins"
    house.follower.come(1, (K, b"a"))
    await house.keep()
    await house.keep(1)
    assert not house.standbys.behind()
    house.standbys.assign(frozenset({1, 4}), frozenset())
    assert house.standbys.behind() == {4}, "a table is not open"


async def test_record_for_a_closed_standby_is_no_fault(house: House) -> None:
    await house.keep(1)
    late, (rows,) = house.follower.apply, house.standbys
    with capture_logs() as logs:
        await house.keep(2)
        await until(lambda: rows not in house.standbys)
        late(TopicPartition(CHANGELOG, 1), [StoredRecord(0, 0, K, b"a", 1)])
    assert not logs


async def test_promoted_standby_keeps_its_rows_and_is_not_followed(house: House) -> None:
    await house.keep(1, 2)
    house.follower.come(1, (K, b"a"))
    late = house.follower.apply
    house.standbys.assign({2}, {1})
    rows = await house.standbys.promote(1)
    assert (rows.number, rows.get(K), rows.applied.offset) == (1, b"a", 1)
    assert house.follower.followed == {2: 0}
    # Records that the follower already has still go to the table until the owner takes it.
    late(TopicPartition(CHANGELOG, 1), [StoredRecord(1, 0, K, b"b", 1)])
    rows.begin(2, 9, rows.now_ms())
    late(TopicPartition(CHANGELOG, 1), [StoredRecord(10, 0, K, b"what the owner wrote before", 2)])
    assert (rows.get(K), rows.applied.offset) == (b"b", 9)
    rows.close()


@pytest.mark.parametrize("assigned", [False, True])
async def test_table_of_demoted_owner_stays_open(house: House, assigned: bool) -> None:
    rows = await house.owned(1)
    rows.begin(4, 9, rows.now_ms())
    house.standbys.demote(rows)
    await (house.keep(2, owned=[1]) if assigned else house.keep(1))
    assert (rows.epoch, house.follower.followed) == (0, {2: 0} if assigned else {1: 9})
    assert await house.standbys.promote(1) is rows
    rows.close()


async def test_aborted_takeover_ahead_of_follower_is_not_another_log(house: House) -> None:
    """Repeated records do not count as another log: a table rebuilt from here would lack the earlier rows."""

    await house.keep(1)
    house.follower.come(1, (K, b"a"), (L, b"b"))
    rows = await house.owned(1)
    house.standbys.demote(rows)
    await house.keep(1)
    further = [StoredRecord(2, 0, L, b"c", 1), StoredRecord(3, 0, L, b"d", 1)]
    rows.apply(further)
    house.follower.apply(TopicPartition(CHANGELOG, 1), further[:1])
    house.follower.apply(TopicPartition(CHANGELOG, 1), [further[1], StoredRecord(4, 0, L, b"e", 1)])
    assert house.node.tables.rebuilt == []
    assert await house.standbys.promote(1) is rows
    assert (rows.get(K), rows.get(L), rows.applied.offset) == (b"a", b"e", 5)
    rows.close()


async def test_table_of_another_log_is_rebuilt_from_start(house: House) -> None:
    await house.keep(1)
    house.follower.come(1, (K, b"a"), (L, b"b"))
    house.follower.come(1, (L, b"c"), first=0)
    house.follower.come(1, (L, b"a row in the middle"), first=5)
    before = house.follower.apply
    await until(lambda: house.follower.apply is not before)
    assert (len(house.node.tables.rebuilt), house.follower.followed) == (1, {1: 0})
    house.follower.come(1, (L, b"c"))
    rows = await house.owned(1)
    assert (rows.get(K), rows.get(L)) == (None, b"c")
    rows.close()


@pytest.mark.parametrize("fault", [None, DiskFull()])
async def test_demoted_table_without_standby_is_closed_and_reopened(house: House, fault: Exception | None) -> None:
    rows = await house.owned(1)
    rows.write({K: b"v"})
    house.standbys.demote(rows, fault)
    await house.keep()
    await until(lambda: not list(house.standbys))
    again = await house.owned(1)
    assert again.get(K) == b"v"
    again.close()


async def test_unopenable_standby_is_retried_and_blocks_no_other(house: House) -> None:
    held = house.node.databases.open(1)
    with capture_logs() as lines:
        house.standbys.assign({1, 2}, frozenset())
        await until(lambda: house.follower.followed == {2: 0})
    assert [line["partition"] for line in lines if line["event"] == "standby.none"][:1] == [1]
    held.close()
    await until(lambda: house.follower.followed == {1: 0, 2: 0})


async def test_failing_standby_recovers_and_blocks_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.keep(1, 2)
    write = TableDatabase.write_rows

    def fail(self: TableDatabase, changes: Mapping[bytes, bytes | None]) -> None:
        if self._path.name == "1.db":
            raise DatabaseFailed("IO error: Too many open files")
        write(self, changes)

    with monkeypatch.context() as patch:
        patch.setattr(TableDatabase, "write_rows", fail)
        house.follower.come(1, (K, b"a"))
        house.follower.come(2, (K, b"a"))
    house.follower.come(1, (L, b"not before the first"), first=1)
    await until(lambda: house.follower.followed == {1: 0, 2: 1})
    house.follower.come(1, (K, b"a"), (L, b"b"))
    tables = {rows.number: rows for rows in house.standbys}
    assert [tables[number].get(K) for number in (1, 2)] == [b"a", b"a"]
    assert tables[1].get(L) == b"b"


async def test_standby_with_full_disk_resumes_at_its_position(house: House) -> None:
    await house.keep(1)
    [rows] = house.standbys
    rows._database.full = "No space left on device"
    house.follower.come(1, (K, b"a"))
    house.follower.come(1, (L, b"b"), first=1)
    await until(lambda: house.follower.followed == {})
    rows._database.full = None
    await until(lambda: house.follower.followed == {1: 0})
    assert list(house.standbys) == [rows]


async def test_cancelled_promotion_leaves_table_to_next(house: House) -> None:
    house.standbys.assign(frozenset(), {1})
    waiting = asyncio.create_task(house.standbys.promote(1))
    await asyncio.sleep(0)
    waiting.cancel()
    rows = await house.standbys.promote(1)
    rows.write({K: b"v"})
    rows.close()


@pytest.mark.parametrize("given_back", [False, True])
async def test_table_older_than_tombstones_is_rebuilt(house: House, given_back: bool) -> None:
    """At the takeover it would claim to be fresh, with sessions that were deleted while the node was away.

    The process may have lived meanwhile, cut off or suspended.
    """

    if given_back:
        owned = await house.owned(1)
        owned.begin(3, 7, owned.now_ms())
        owned.write({K: b"deleted long ago"})
        owned.note({}, 8, owned.now_ms())
        house.standbys.demote(owned)
        house.log.now += KEEP_TOMBSTONES_MS
    else:
        database = house.node.databases.open(1)
        applied = Applied(7, 1, house.log.now - KEEP_TOMBSTONES_MS)
        database.write_rows({K: b"deleted long ago", APPLIED: msgspec.msgpack.encode(applied)})
        database.close()
    await house.keep(1)
    house.follower.come(1, (L, b"v"))
    await until(lambda: house.follower.followed == {1: 0})
    house.follower.come(1, (L, b"v"))
    rows = await house.owned(1)
    assert (rows.get(K), rows.get(L)) == (None, b"v")
    [rebuilt] = house.node.tables.rebuilt
    assert rebuilt.path == "", "what was deleted is not kept"
    rows.close()


async def test_tables_that_are_not_needed_for_long_are_deleted(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing erases deleted rows from a table that no changelog reaches."""
    house.node.tables.open(1).close()
    with monkeypatch.context() as patch:
        patch.setattr("streams.tables.tables.UNUSED_SECONDS", -1.0)
        await house.standbys.drop_unused()
    assert house.there() == {"1"}, "nothing is assigned yet"
    for number in 1, 2, 3:
        await house.keep(number)
    rows = await house.owned(2)
    await until(lambda: len(list(house.standbys)) == 1)
    await house.standbys.drop_unused()
    assert house.there() == {"1", "2", "3"}
    monkeypatch.setattr("streams.tables.tables.UNUSED_SECONDS", -1.0)
    await house.standbys.drop_unused()
    assert house.there() == {"2", "3"}
    await house.keep(1)
    assert house.there() == {"1", "2", "3"}
    rows.close()
