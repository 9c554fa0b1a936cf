"""Batches of records into rows: retry, parking, order, and no remains of a failed record."""

import asyncio
import errno
from collections.abc import Iterable
from unittest import mock

import msgspec
import pytest

from streams.disk import DatabaseFailed, DiskFull
from streams.folding.batch import fold_batch, fold_patiently
from streams.folding.draft import Draft
from streams.folding.fold import Fold
from streams.folding.record import id_of
from streams.log import StoredRecord
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition, drafting, fold
from topics import keys
from topics.errors import RecordError, Unavailable
from topics.sessions.rules import SessionHead

SESSION = "S" * 24


class Numbers(Fold[SessionHead]):
    """Writes each record's offset under its key; fails at given offsets, after it has written."""

    def __init__(self, failures: dict[int, list[Exception]] | None = None) -> None:
        super().__init__(lambda changes: None)
        self.failures = failures or {}
        self.tried: list[int] = []
        self.batches = 0

    @staticmethod
    def decode(value: bytes | None) -> bytes | None:
        return value

    def fold(self, draft: Draft[SessionHead], record: StoredRecord) -> None:
        self.tried.append(record.offset)
        draft.put(record.key or b"", b"%d" % record.offset)
        if remaining := self.failures.get(record.offset):
            raise remaining.pop(0)

    def written(self) -> None:
        self.batches += 1


class House:
    """A partition, its store, and the parked records."""

    def __init__(self) -> None:
        self.partition = MemoryPartition(7)
        self.store = SessionStore(self.partition)
        self.parked: list[tuple[int, int, str]] = []

    async def park(self, partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        self.parked.append((partition, record.offset, cause))

    def batch(self, numbers: Fold[SessionHead], records: Iterable[bytes]) -> None:
        log = [StoredRecord(offset, 0, key, b"") for offset, key in enumerate(records)]
        asyncio.run(fold(self.store, log, numbers, self.park))


def test_batch_is_one_write_with_last_value_per_key() -> None:
    house, numbers = House(), Numbers()
    with mock.patch.object(house.partition, "write", wraps=house.partition.write) as write:
        house.batch(numbers, [b"a", b"b", b"a"])
    write.assert_called_once_with({b"a": b"2", b"b": b"1"}, {})
    assert numbers.batches == 1


def test_batch_ends_before_first_failing_record() -> None:
    """Failures must not block a loop that others wait for; a caller that can wait retries."""
    house, numbers = House(), Numbers({2: [RecordError("noise")]})
    log = [StoredRecord(offset, 0, b"abcd"[offset : offset + 1], b"") for offset in range(4)]
    assert fold_batch(house.store, log, numbers) == 2
    assert numbers.tried == [0, 1, 2]
    assert house.partition.rows == {b"a": b"0", b"b": b"1"}
    assert numbers.batches == 1
    assert house.parked == []
    assert fold_batch(house.store, log[2:], numbers) == 2


@pytest.mark.parametrize(
    "fault", [DatabaseFailed("Too many open files"), OSError(errno.EIO, "Input/output error"), MemoryError()], ids=repr
)
def test_machine_fault_does_not_park_record(fault: Exception) -> None:
    """A record parked for it would be lost, and no later one would fit."""
    house, numbers = House(), Numbers({1: [fault] * 5})
    log = [StoredRecord(offset, 0, b"ab"[offset : offset + 1], b"") for offset in range(2)]
    with pytest.raises(Unavailable):
        fold_batch(house.store, log, numbers)
    with pytest.raises(Unavailable):
        asyncio.run(fold_patiently(house.store, log[1], numbers, house.park))
    assert (house.parked, house.partition.rows, numbers.batches) == ([], {}, 0)


def test_batch_ends_once_it_has_changed_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletions of long sessions that come together must not hold the loop."""
    monkeypatch.setattr("streams.folding.batch.BATCH_ROWS", 2)
    house, numbers = House(), Numbers()
    log = [StoredRecord(offset, 0, b"abbbc"[offset : offset + 1], b"") for offset in range(5)]
    assert fold_batch(house.store, log, numbers) == 2
    assert fold_batch(house.store, log[2:], numbers) == 3
    assert house.partition.rows == {b"a": b"0", b"b": b"3", b"c": b"4"}


def test_failed_parking_stops_batch() -> None:
    house, numbers = House(), Numbers({0: [RecordError("noise")]})
    park = mock.AsyncMock(side_effect=OSError("the log is gone"))
    with pytest.raises(OSError, match="the log is gone"):
        asyncio.run(fold_patiently(house.store, StoredRecord(0, 0, b"a", b""), numbers, park))
    assert numbers.batches == 0


def test_concurrent_writes_during_parking_are_kept() -> None:
    """A poison record delays one agent; the other writes the same session's head meanwhile."""
    house = House()
    house.partition.rows[keys.row_key(keys.SESSION, SESSION, keys.HEAD)] = b""

    class Touch(Numbers):
        def __init__(self, **change: int) -> None:
            super().__init__()
            self.change = change

        def fold(self, draft: Draft[SessionHead], record: StoredRecord) -> None:
            if record.value == b"poison":
                raise RecordError("poison")
            head = draft.head(SESSION)
            assert head is not None
            draft.put_head(SESSION, msgspec.structs.replace(head, **self.change))

    async def other_agent(partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        assert fold_batch(house.store, [StoredRecord(0, 0, b"", b"")], Touch(received=5)) == 1

    with drafting(house.store) as draft:
        draft.put_head(SESSION, SessionHead("stream", None, 0, 0))
    log = [StoredRecord(1, 0, b"", b""), StoredRecord(2, 0, b"", b"poison"), StoredRecord(3, 0, b"", b"")]
    asyncio.run(fold(house.store, log, Touch(next=3), other_agent))
    head = SessionStore(house.partition).head(SESSION)
    assert head is not None
    assert (head.next, head.received) == (3, 5)


@pytest.mark.parametrize("key", [None, b"", b"short", b"\xff" * 24, b"S" * 23 + b"/"])
def test_record_with_invalid_id_is_rejected(key: bytes | None) -> None:
    with pytest.raises(RecordError, match="not an id"):
        id_of(StoredRecord(0, 0, key, b""))


class Releases(Numbers):
    """Releases the audio at an offset with each record."""

    def fold(self, draft: Draft[SessionHead], record: StoredRecord) -> None:
        self.changes.changed[SESSION] = None
        draft.release(record.offset)
        super().fold(draft, record)


def test_failed_write_leaves_no_side_effects() -> None:
    """The audio is still needed, because its results are not in the table."""
    house, numbers = House(), Releases()
    for offset in (0, 1):
        house.store.references.add(offset)
    log = [StoredRecord(offset, 0, b"k", b"") for offset in (0, 1)]
    with mock.patch.object(house.partition, "write", side_effect=DiskFull), pytest.raises(DiskFull):
        fold_batch(house.store, log, numbers)
    assert (numbers.batches, numbers.changes.changed, house.store.references.lowest()) == (0, {}, 0)
    assert fold_batch(house.store, log, numbers) == 2
    assert (numbers.batches, house.store.references.lowest()) == (1, None)
