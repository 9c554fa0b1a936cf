"""A consumer folds records delivered in order at once, fetches the rest, and folds nothing twice."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from streams.disk import DatabaseFailed
from streams.folding.batch import ATTEMPTS
from streams.folding.draft import Draft
from streams.log import StoredRecord
from streams.node.partition_consumer import (
    PARKED_AT_LEAST,
    PARKED_SHARE,
    TABLE_ATTEMPTS,
    PartitionConsumer,
    PartitionStopped,
)
from streams.sessions.store import SessionStore
from tests.unit.streams.node.logs import POISON, MemoryLog, Notes
from tests.unit.streams.sessions.rows import MemoryPartition
from topics.catalog import COMMANDS, TopicPartition
from topics.errors import Unavailable

TP = TopicPartition(COMMANDS, 0)


class House:
    """A consumer with its surroundings."""

    def __init__(self, position: int = 0, *, level: bool = True) -> None:
        self.topic = MemoryLog()
        self.topic.at_once = 2
        self.notes = Notes(COMMANDS, [])
        self.parked: list[tuple[int, int, str]] = []
        source: Any = self.topic
        self.consumer = PartitionConsumer(TP, position, SessionStore(MemoryPartition(0)), self.notes, source, self.park)
        self.consumer.level = level

    def append(self, count: int, value: bytes = b"v", skipped: int = 0) -> list[StoredRecord]:
        """Append records, the first after `skipped` offsets without records."""
        first = self.topic.end(TP) + skipped
        added = [StoredRecord(offset, 0, b"k", value) for offset in range(first, first + count)]
        self.topic.records[TP] += added
        return added

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.notes.folded]

    async def park(self, partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        await asyncio.sleep(0)
        self.parked.append((partition, record.offset, cause))


def behind(count: int, value: bytes = b"v") -> House:
    """Return a consumer with this many records to catch up with."""
    house = House(level=False)
    house.append(count, value)
    house.consumer.end = count
    return house


async def test_records_in_order_are_folded_at_once_and_missing_ones_fetched_first() -> None:
    house = House()
    assert house.consumer.deliver(house.append(2))
    assert house.consumer.deliver(house.append(3))
    assert house.offsets == [0, 1, 2, 3, 4]
    assert (house.consumer.position, house.consumer.end, house.consumer.folded) == (5, 5, 5)
    house.append(2)
    assert not house.consumer.deliver(house.append(2))
    # During the fetch, new records wait on the log.
    assert house.consumer.deliver(house.append(1))
    assert (house.offsets, house.topic.asked) == ([0, 1, 2, 3, 4], [])
    await house.consumer.catch_up()
    assert house.offsets == list(range(10))
    assert house.consumer.level
    assert house.consumer.deliver(house.append(1))
    assert house.offsets[-1] == 10
    assert house.topic.asked == [(5, 10)]


async def test_records_delivered_during_catch_up_are_folded() -> None:
    house = behind(3)
    catching_up = asyncio.create_task(house.consumer.catch_up())
    await asyncio.sleep(0)
    for _ in range(3):
        assert house.consumer.deliver(house.append(1))
        await asyncio.sleep(0)
    await catching_up
    assert house.offsets == list(range(6))
    assert (house.consumer.position, house.consumer.level) == (6, True)


@pytest.mark.parametrize(
    "faults",
    [[ValueError("a bug that passes")], [DatabaseFailed("IO error: Too many open files")] * (TABLE_ATTEMPTS - 1)],
    ids=["a bug", "the table"],
)
async def test_failed_record_is_refetched_and_folded_once(faults: list[Exception]) -> None:
    house = House()
    house.notes.failures = faults.copy()
    assert not house.consumer.deliver(house.append(3))
    assert house.consumer.position == 0
    await house.consumer.catch_up()
    assert (house.offsets, house.parked) == ([0, 1, 2], [])
    assert (house.consumer.position, house.consumer.folded, house.consumer.level) == (3, 3, True)


async def test_persistent_table_failure_is_raised() -> None:
    house = behind(3)
    house.notes.failures = [DatabaseFailed("IO error: Input/output error")] * (TABLE_ATTEMPTS + 1)
    with pytest.raises(DatabaseFailed, match="Input/output"):
        await house.consumer.catch_up()
    assert (len(house.notes.failures), house.parked, house.consumer.level) == (1, [], False)


async def test_failures_of_log_do_not_count_for_table() -> None:
    house = behind(3)
    away: list[Exception | None] = [Unavailable("the log is away")] * TABLE_ATTEMPTS
    house.topic.faults = [*away, None, *away]
    house.notes.failures = [DatabaseFailed("IO error: Input/output error")]
    await house.consumer.catch_up()
    assert house.offsets == [0, 1, 2]


@pytest.mark.parametrize("is_bug", [True, False])
async def test_record_that_cannot_be_folded_is_parked_and_folding_continues(is_bug: bool) -> None:
    house = House()
    records = [*house.append(1), *house.append(1, b"v" if is_bug else POISON), *house.append(2)]
    assert house.consumer.deliver(records[:1])
    if is_bug:
        house.notes.failures = [ValueError("a bug")] * (2 + ATTEMPTS)
    assert not house.consumer.deliver(records[1:])
    assert (house.offsets, house.consumer.position) == ([0], 1)
    await house.consumer.catch_up()
    assert (house.offsets, house.notes.failures) == ([0, 2, 3], [])
    assert house.parked == [(0, 1, "ValueError: a bug" if is_bug else "RecordError: record version 9 is not known")]
    assert (house.consumer.position, house.consumer.parked, house.consumer.level) == (4, 1, True)


async def test_too_many_poison_records_stop_partition() -> None:
    """An older node must not park records that a newer one has acknowledged."""
    house = behind(PARKED_AT_LEAST + 5, POISON)
    with pytest.raises(PartitionStopped, match=r"cannot be read, the last one at offset 19: .* version 9"):
        await house.consumer.catch_up()
    assert len(house.parked) == PARKED_AT_LEAST - 1
    assert house.consumer.position == PARKED_AT_LEAST - 1
    assert not house.consumer.level


async def test_small_share_of_poison_does_not_stop_partition() -> None:
    house = House(level=False)
    for _ in range(2 * PARKED_AT_LEAST):
        house.append(int(2 / PARKED_SHARE))
        house.append(1, POISON)
    house.topic.at_once = 1000
    house.consumer.end = len(house.topic.records[TP])
    await house.consumer.catch_up()
    assert len(house.parked) == house.consumer.parked == 2 * PARKED_AT_LEAST
    assert house.consumer.position == house.consumer.end


async def test_catch_up_resumes_at_position_after_log_outage() -> None:
    house = behind(6)
    house.topic.faults = [Unavailable("away"), None, Unavailable("away again")]
    await house.consumer.catch_up()
    assert house.offsets == list(range(6))
    assert house.topic.asked == [(0, 6), (0, 6), (2, 6)]


async def test_other_log_errors_are_not_retried() -> None:
    house = behind(2)
    house.topic.faults = [OSError("damaged")]
    with pytest.raises(OSError, match="damaged"):
        await house.consumer.catch_up()
    assert not house.consumer.level


async def test_long_batch_is_folded_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.node.partition_consumer.FOLDED", 2)
    house = behind(5)
    house.topic.at_once = 5
    catching_up, folded = asyncio.create_task(house.consumer.catch_up()), [0]
    while not catching_up.done():
        await asyncio.sleep(0)
        folded.append(len(house.offsets))
    assert max(after - before for before, after in pairwise(folded)) == 2
    assert house.offsets == [0, 1, 2, 3, 4]


async def test_batch_that_changes_many_rows_is_folded_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.folding.batch.BATCH_ROWS", 1)
    monkeypatch.setattr(Draft, "size", 1)
    house = House()
    assert not house.consumer.deliver(house.append(4))
    assert house.offsets == [0]
    await house.consumer.catch_up()
    assert (house.offsets, house.parked) == ([0, 1, 2, 3], [])


async def test_expired_offsets_are_skipped() -> None:
    house = House(level=False)
    house.append(2, skipped=5)
    house.append(1, skipped=3)
    house.consumer.end = 20
    await house.consumer.catch_up()
    assert house.offsets == [5, 6, 10]
    assert (house.consumer.position, house.consumer.level) == (20, True)
    asked = len(house.topic.asked)
    await house.consumer.catch_up()
    assert len(house.topic.asked) == asked, "nothing is missing"
    assert house.consumer.deliver(house.append(1, skipped=9))
    assert house.offsets[-1] == 20


@pytest.mark.parametrize("what", ["records", "poison", "a log that is away"])
async def test_closed_lane_stops_catching_up(what: str) -> None:
    house = behind(8, POISON if what == "poison" else b"v")
    if what == "a log that is away":
        house.topic.faults = [None, *[Unavailable("away")] * 1000]
    catching_up = asyncio.create_task(house.consumer.catch_up())
    while house.consumer.position < 2:  # noqa: ASYNC110 (it is looked at between any two steps)
        await asyncio.sleep(0)
    house.consumer.closed = True
    await asyncio.wait_for(catching_up, 60)
    assert house.consumer.position < 5
    assert len(house.parked) <= 2
    assert not house.consumer.level


def test_lane_is_stuck_if_behind_at_same_position_twice() -> None:
    """Records in flight count as lag too, but not for long."""
    consumer = House(position=3).consumer
    assert [consumer.seen_behind(end) for end in (3, 5, 5, 6)] == [False, False, True, True]
    consumer.position = 5
    assert [consumer.seen_behind(end) for end in (6, 6)] == [False, True]
    consumer.position = 6
    assert [consumer.seen_behind(end) for end in (6, 7)] == [False, False]
