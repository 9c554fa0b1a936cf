"""A node's partitions: revoked with unwritten rows, and others' writes to their changelogs."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from streams.disk import DatabaseDamaged
from streams.log import Ack, StoredRecord
from streams.node import partitions as module
from streams.node.owner import PartitionOwner
from streams.node.partition_consumer import PARKED_AT_LEAST
from streams.tables.database import Databases, TableDatabase
from streams.tables.partition_rows import APPLIED, Applied
from tests.damage.files import Damage, each, emptied
from tests.unit.streams.node.logs import AWAY, POISON, MemoryLog
from tests.unit.streams.node.members import Shareholder
from tests.waiting import until
from topics.catalog import CHANGELOG, COMMANDS, KEEP_TOMBSTONES_MS, TopicPartition

K, L = b"\x01k", b"\x01l"
NOW = MemoryLog().now
ROWS = TopicPartition(CHANGELOG, 2)


@pytest.fixture
def holder(tmp_path: Path, loop: asyncio.Runner) -> Iterator[Shareholder]:
    """A running node without partitions."""
    holder = Shareholder(MemoryLog(), tmp_path)
    running = holder.running()
    loop.run(running.__aenter__())
    yield holder
    loop.run(running.__aexit__(None, None, None))


# --- gaps -----------------------------------------------------------------------------------------------------------


def late(holder: Shareholder, epoch: int, key: bytes = K) -> tuple[int, int]:
    """Let another node write a row after the owner's rows; return its offsets."""
    at = holder.log.add(CHANGELOG, 2, key, b"late", epoch)
    return at, at + 1


def logged(holder: Shareholder, key: bytes) -> list[tuple[bytes | None, int]]:
    return [(record.value, record.epoch) for record in holder.log.records[ROWS] if record.key == key]


async def test_unread_gap_blocks_durable_positions(holder: Shareholder) -> None:
    log = holder.log
    await holder.serve(2)
    owner = holder.owners.here[2]
    owner.rows.write({K: b"good"})
    log.gates[ROWS] = asyncio.Event()
    gaps = [late(holder, 0), late(holder, 0, L)]
    for gap in gaps:
        holder.partitions.overtaken(ROWS, *gap)
    assert owner.unread_gaps == set(gaps)
    before = dict(owner.durable)
    holder.partitions.deliver(TopicPartition(COMMANDS, 2), [StoredRecord(0, 0, b"k", b"v")])
    await until(lambda: owner.noted == owner.positions())
    assert owner.durable == before != owner.positions()
    log.faults = [AWAY]
    log.gates.pop(ROWS).set()
    await until(lambda: owner.durable == owner.positions())
    assert owner.unread_gaps == set()
    assert logged(holder, K)[-1] == (b"good", 1)
    assert logged(holder, L)[-1] == (None, 1)


async def test_positions_noted_before_gap_was_read_are_ignored(
    holder: Shareholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated rows may be lost in flight, so the next owner must find the late ones again."""
    log, notes = holder.log, list[tuple[asyncio.Future[Ack], Ack]]()

    def note(topic: str, partition: int, key: bytes, value: bytes, bounded: bool, epoch: int) -> asyncio.Future[Ack]:
        notes.append((asyncio.Future(), Ack(log.add(topic, partition, key, value, epoch), 0)))
        return notes[-1][0]

    await holder.serve(2)
    owner = holder.owners.here[2]
    monkeypatch.setattr(log, "append", note)
    gap = late(holder, 0)
    holder.partitions.deliver(TopicPartition(COMMANDS, 2), [StoredRecord(0, 0, b"k", b"v")])
    await until(lambda: owner.noted == owner.positions())
    early = len(notes)
    holder.partitions.overtaken(ROWS, *gap)
    await until(lambda: not owner.unread_gaps)
    for future, ack in notes[:early]:
        future.set_result(ack)
    await asyncio.sleep(0)
    assert owner.rows.applied.offset <= gap[0]
    await until(lambda: len(notes) > early)
    notes[-1][0].set_result(notes[-1][1])
    await until(lambda: owner.durable == owner.positions())
    assert owner.rows.applied.offset > gap[1]


async def test_late_rows_are_rewritten_in_slices(holder: Shareholder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REWRITTEN", 1)
    await holder.serve(2)
    rows = holder.owners.here[2].rows
    rows.write({K: b"good", L: b"fine"})
    (start, _), (_, stop) = late(holder, 0), late(holder, 0, L)
    with mock.patch.object(rows, "write_again", wraps=rows.write_again) as write_again:
        holder.partitions.overtaken(ROWS, start, stop)
        await until(lambda: not holder.owners.here[2].unread_gaps)
    assert [call.args for call in write_again.call_args_list] == [([K],), ([L],)]
    assert [logged(holder, key)[-1] for key in (K, L)] == [(b"good", rows.epoch), (b"fine", rows.epoch)]


async def test_gap_with_later_epoch_closes_partition(holder: Shareholder) -> None:
    await holder.serve(1, 2)
    holder.partitions.overtaken(ROWS, *late(holder, 7))
    await until(lambda: list(holder.owners.here) == [1])
    assert (holder.work.lost, holder.member.rejoins) == ([2], 1)
    # Even if the group still assigns it to this node.
    await holder.serve(1, 2)


async def test_gap_before_table_is_read_during_takeover(holder: Shareholder) -> None:
    """The previous owner's rows are still acknowledged; an error there lost the writer all other acknowledgements."""
    holder.log.add(CHANGELOG, 2, K, b"good", 3)
    holder.log.faults = [AWAY]
    holder.assign(2)
    assert not holder.owners.here[2].has_table
    holder.partitions.overtaken(ROWS, *late(holder, 0))
    await until(lambda: holder.serving() == [2])
    assert logged(holder, K)[-1] == (b"good", 4)


async def test_unreadable_gap_fails_node(holder: Shareholder) -> None:
    await holder.serve(2)
    holder.log.faults = [KeyError("a bug")]
    holder.partitions.overtaken(ROWS, *late(holder, 0))
    await until(lambda: holder.failures)
    assert holder.tasks.failure == "KeyError: 'a bug'"


# --- taking over ----------------------------------------------------------------------------------------------------


def table(holder: Shareholder, number: int, applied: Applied, rows: dict[bytes, bytes]) -> None:
    """Give the node a table written up to `applied`."""
    database = holder.databases.open(number)
    database.write_rows({**rows, APPLIED: msgspec.msgpack.encode(applied)})
    database.close()


def rows_of(holder: Shareholder, number: int) -> dict[bytes, bytes]:
    return dict(holder.owners.here[number].rows.scan(b"\x01", b"\xff"))


@pytest.mark.parametrize(
    ("applied", "begin", "reason", "is_kept"),
    [
        (Applied(9, 1, NOW), 0, "it is of another log", True),
        (Applied(2, 1, NOW, log=b"another"), 0, "it is of another log", True),
        (Applied(2, 1, NOW), 3, "its changelog begins at 3", True),
        (Applied(2, 1, NOW - KEEP_TOMBSTONES_MS), 0, "it is older than the changelog's tombstones", False),
    ],
)
async def test_unfit_table_is_rebuilt_and_reported(
    holder: Shareholder, applied: Applied, begin: int, reason: str, is_kept: bool
) -> None:
    """A table that is too old contains deleted rows; any other may be the last copy of something."""
    table(holder, 2, applied, {K: b"deleted long ago"})
    holder.log.begins[ROWS] = begin
    holder.log.name = b"this"
    for number in range(5):
        holder.log.add(CHANGELOG, 2, L, b"%d" % number)
    await holder.serve(2)
    assert rows_of(holder, 2) == {L: b"4"}
    [rebuilt] = holder.partitions.tables.rebuilt
    assert (rebuilt.partition, bool(rebuilt.path), rebuilt.is_lost) == (2, is_kept, is_kept)
    assert reason in rebuilt.reason
    assert (holder.failures, holder.work.lost) == (0, [2])
    if is_kept:
        Path(rebuilt.path).rename(holder.directory / "partitions" / "7.db")
        kept = holder.databases.open(7)
        assert kept.get(K) == b"deleted long ago"
        kept.close()


def header_changed(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:9] + bytes([data[9] ^ 0xFF]) + data[10:])


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST*", "*.sst"])
@pytest.mark.parametrize("damage", [Path.unlink, emptied, header_changed])
async def test_damaged_table_is_set_aside_and_rebuilt_from_changelog(
    holder: Shareholder, pattern: str, damage: Damage
) -> None:
    rows = {b"\x01%d" % number: b"v" * 100 for number in range(100)}
    for key, value in rows.items():
        holder.log.add(CHANGELOG, 2, key, value)
    table(holder, 2, Applied(100, 0, NOW), rows)
    each(pattern, damage)(holder.directory / "partitions" / "2.db")
    await holder.serve(1, 2)
    with suppress(DatabaseDamaged):
        rows_of(holder, 2)  # Some damage appears only on reads.
    await until(lambda: holder.partitions.tables.rebuilt and holder.serving() == [1, 2])
    assert rows_of(holder, 2) == rows
    [rebuilt] = holder.partitions.tables.rebuilt
    assert list(Path(rebuilt.path).iterdir()) != []
    assert holder.failures == 0


async def test_blocked_takeover_does_not_delay_other_partitions(holder: Shareholder) -> None:
    holder.log.add(CHANGELOG, 1, K, b"v")
    gate = holder.log.gates[TopicPartition(CHANGELOG, 1)] = asyncio.Event()
    holder.assign(1, 2, 3)
    await until(lambda: holder.serving() == [2, 3])
    assert not holder.partitions.served.is_set()
    owner = holder.owners.here[1]
    holder.assign(2, 3)
    await until(lambda: not owner.tasks)
    assert sorted(holder.work.surveyed) == [2, 3]
    holder.assign(1, 2, 3)
    gate.set()
    await until(lambda: holder.serving() == [1, 2, 3])
    assert holder.partitions.served.is_set()


async def test_tables_are_opened_off_the_event_loop(holder: Shareholder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats run on the loop."""
    threads = []
    opened = Databases.open

    def open(self: Databases, number: int) -> TableDatabase:
        threads.append(threading.current_thread())
        return opened(self, number)

    monkeypatch.setattr(Databases, "open", open)
    holder.assign(1, standbys=[2])
    await until(lambda: holder.serving() == [1] and len(threads) == 2)
    assert threading.main_thread() not in threads


async def test_partition_that_stops_during_takeover_does_not_serve(
    holder: Shareholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = TopicPartition(COMMANDS, 2)

    async def survey(owner: PartitionOwner) -> None:
        for _ in range(PARKED_AT_LEAST):
            holder.log.add(*commands, b"k", POISON)
        holder.partitions.deliver(commands, holder.log.records[commands][-1:])
        await until(lambda: owner.stopped is not None)

    monkeypatch.setattr(holder.work, "survey", survey)
    holder.assign(2)
    await until(lambda: holder.work.begun == [2])
    assert holder.serving() == [], "nobody would fold what it accepts"
    assert holder.partitions.waits() is None
    assert "cannot be read" in (holder.owners.here[2].stopped or "")


async def test_partition_whose_log_lost_records_stops_at_once(holder: Shareholder) -> None:
    holder.assign(1, 2)
    await until(lambda: holder.serving() == [1, 2])
    for _ in range(2):
        holder.partitions.stop_partition(2, "records were lost")
    holder.partitions.stop_partition(3, "records were lost")
    assert holder.serving() == [1]
    assert holder.owners.here[2].stopped == "records were lost"
    assert holder.failures == 0


async def test_idle_table_stays_fresh_while_log_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.005)
    async with Shareholder(MemoryLog(), tmp_path).running() as holder:
        holder.assign(1, standbys=[2])
        await until(lambda: holder.serving() == [1] and list(holder.partitions.standbys))
        tables = [holder.owners.here[1].rows, *holder.partitions.standbys]
        await until(lambda: holder.owners.here[1].durable)
        holder.log.now += 2 * KEEP_TOMBSTONES_MS
        asked = holder.log.asks
        await until(lambda: holder.log.asks > asked + 2)
        for rows in tables:
            rows.epoch = 0
            rows.apply([StoredRecord(1000, 0, K, b"v", 9)])
            assert rows.get(K) == b"v"
