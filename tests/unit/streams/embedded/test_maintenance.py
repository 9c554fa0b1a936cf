"""Maintenance keeps the last record of each key and deletes unneeded ones, after notifying the table."""

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from streams.embedded import compaction
from streams.embedded import maintenance as module
from streams.embedded.compaction import Compaction
from streams.embedded.embedded_history import embedded_history
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogError
from streams.embedded.maintenance import Maintenance, first_since
from tests.unit.streams.appending import append_soon
from tests.unit.streams.clocks import HandClock
from tests.unit.streams.embedded.conftest import FailingRocks, Reopen
from tests.waiting import until
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import Unavailable

ROWS = TopicPartition("rows", 0)
AUDIO = TopicPartition("audio", 0)
ALL = 1 << 30


@pytest.fixture(autouse=True)
def only_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes find all superseded records, and do not pause."""
    monkeypatch.setattr(compaction, "PAUSE", 0)
    monkeypatch.setattr(compaction, "RECENT_KEYS", 0)


@pytest.fixture
def rows(reopen: Reopen, loop: asyncio.Runner) -> EmbeddedLog:
    log = loop.run(reopen())
    log.declare("rows", 1, compact=True)
    return log


async def put(log: EmbeddedLog, pairs: str) -> None:
    """Append records written as `a1 b2 a-`: key, then value or a tombstone; `-1` has no key."""
    for key, value in map(tuple, pairs.split()):
        append_soon(log, "rows", 0, None if key == "-" else key.encode(), None if value == "-" else value.encode())
    await log.flush()


def kept(log: EmbeddedLog) -> str:
    return " ".join(f"{(r.key or b'-').decode()}{(r.value or b'-').decode()}" for r in log.read(ROWS, 0, ALL, ALL))


# --- most superseded records need no pass ---------------------------------------------------------------------------


async def test_next_group_deletes_what_the_last_one_superseded(reopen: Reopen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "RECENT_KEYS", 2)
    rows = await reopen()
    rows.declare("rows", 1, compact=True)
    await put(rows, "a1 b1 -1 a2")
    assert kept(rows) == "a1 b1 -1 a2", "not in the group itself, which may fail"
    await put(rows, "b- c1")
    assert kept(rows) == "b1 -1 a2 b- c1"
    await put(rows, "a3")
    assert kept(rows) == "-1 a2 b- c1 a3", "a was forgotten: three keys had been written, and two are remembered"
    assert rows.dirty(ROWS) == (5, 0)
    assert rows.compact(ROWS) == 1
    assert kept(rows) == "-1 b- c1 a3"
    await put(rows, "a4 c2")
    await put(rows, "d1")
    assert kept(rows) == "-1 b- a4 c2 d1"
    assert rows.dirty(ROWS) == (3, 2), "of the four that the pass kept, two are there"


async def test_superseded_record_stays_until_its_successor_is_durable(reopen: Reopen) -> None:
    log = await reopen(sync=True)
    log.declare("rows", 1, compact=True)
    await put(log, "a1")
    rocks = log.store._db.rocks
    log.store._db.rocks = FailingRocks(rocks, "flush_wal", "IO error: broken", times=1)  # type: ignore[assignment]
    with pytest.raises(Unavailable):
        await log.append("rows", 0, b"a", b"2")
    log.store._db.rocks = rocks
    await until(lambda: log.refusal is None)
    await put(log, "b1")
    await put(log, "c1")
    assert kept(log) == "a1 b1 c1"


# --- a pass ---------------------------------------------------------------------------------------------------------


async def test_old_tombstones_are_removed_after_grace_period(
    rows: EmbeddedLog, clock: HandClock, reopen: Reopen
) -> None:
    await put(rows, "a1 a- b1")
    clock.now += 7200
    again = await reopen()
    again.declare("rows", 1, compact=True)
    again.compact(ROWS)
    assert kept(again) == "a- b1", "opened just now: a table that replays from before may not have seen it"
    clock.now += 3601
    await put(again, "c1 c- d1")
    again.compact(ROWS)
    assert kept(again) == "b1 c- d1"


async def test_clock_that_jumps_ahead_removes_no_tombstones(
    rows: EmbeddedLog, clock: HandClock, reopen: Reopen
) -> None:
    """They are not old: a table that replays after a crash may not have seen them."""
    steady = HandClock()
    log = await reopen(steady=steady)
    log.declare("rows", 1, compact=True)
    clock.now, steady.now = clock.now + 7200, steady.now + 7200
    await put(log, "a1 a-")
    clock.now += 86_400
    await put(log, "b1")
    log.compact(ROWS)
    assert kept(log) == "a- b1"
    clock.now, steady.now = clock.now + 3601, steady.now + 3601
    await put(log, "c1")
    log.compact(ROWS)
    assert kept(log) == "b1 c1"


async def test_last_record_is_kept_even_as_old_tombstone(rows: EmbeddedLog, clock: HandClock) -> None:
    await put(rows, "a1 a-")
    clock.now += 9999
    rows.compact(ROWS)
    assert kept(rows) == "a-"
    assert rows.end(ROWS) == 2


async def test_closing_log_stops_compaction(rows: EmbeddedLog) -> None:
    await put(rows, "a1 a2 b1")
    partition = rows._partitions[ROWS]
    assert Compaction(rows.store, partition, lambda: True, tombstones_before_ms=0).run() == 0
    assert rows.dirty(ROWS) == (3, 0)


async def test_history_reads_changelog_after_interrupted_compaction(tmp_path: Path) -> None:
    log = EmbeddedLog.open(tmp_path, sync=False)
    log.declare(CHANGELOG, 1, compact=True)
    for value in (b"1", b"2", b"3"):
        await log.append(CHANGELOG, 0, b"key", value)
    partition = log._partitions[TopicPartition(CHANGELOG, 0)]
    with mock.patch.object(Compaction, "_remember", side_effect=LogError("killed")), pytest.raises(LogError):
        log.compact(partition.tp)
    await log.close()
    async with embedded_history(tmp_path) as history:
        assert [record.value async for record in history.records(CHANGELOG)] == [b"3"]


# --- maintenance: trims by time and by reference, compacts if worthwhile, survives errors ---------------------------


@pytest.fixture
def aged(reopen: Reopen, clock: HandClock, loop: asyncio.Runner) -> EmbeddedLog:
    """Ten audio records, ten seconds apart, from 1000 s on; the clock is at 1090 s."""

    async def made() -> EmbeddedLog:
        log = await reopen()
        log.declare("audio", 1, retention_ms=45_000)
        log.declare("rows", 1, compact=True)
        for number in range(10):
            clock.now = 1000.0 + 10 * number
            await log.append("audio", 0, b"k", b"v")
            await log.append("rows", 0, b"k", b"v")
        return log

    return loop.run(made())


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 0), (1_000_000, 0), (1_000_001, 1), (1_045_000, 5), (1_090_000, 9), (1_090_001, 10)]
)
def test_first_since_finds_the_boundary(aged: EmbeddedLog, timestamp: int, offset: int) -> None:
    assert first_since(aged, AUDIO, timestamp) == offset


@pytest.mark.parametrize(
    ("retention_ms", "floor", "earliest"),
    [(45_000, None, 5), (45_000, 0, 5), (45_000, 3, 5), (45_000, 8, 8), (45_000, 99, 10), (None, None, 0)],
)
async def test_records_are_trimmed_by_retention_or_floor(
    aged: EmbeddedLog, retention_ms: int | None, floor: int | None, earliest: int
) -> None:
    aged.declare("audio", 1, retention_ms=retention_ms)
    maintenance = Maintenance(aged, floor=lambda tp: floor)
    await maintenance.round()
    assert aged.earliest(AUDIO) == earliest
    assert aged.earliest(ROWS) == 0
    await maintenance.reclaim()
    assert len(aged.read(AUDIO, 0, 99, 999)) == 10 - earliest


async def test_audio_trimmed_from_the_write_buffer_reaches_no_second_file(
    aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "TRIM_SECONDS", 0.0)
    monkeypatch.setattr(module, "TRIM_RECORDS", 8)
    for _ in range(10):
        append_soon(aged, "audio", 0, b"k", bytes(10_000))
    await aged.flush()
    floor = 7
    task = asyncio.create_task(Maintenance(aged, floor=lambda tp: floor if tp == AUDIO else None).trim())
    await asyncio.sleep(0.01)
    assert aged.earliest(AUDIO) == 0
    floor = 18
    await until(lambda: aged.earliest(AUDIO) == 18)
    task.cancel()
    await aged.flush()
    await asyncio.to_thread(aged.reclaim, AUDIO)
    assert [record.offset for record in aged.read(AUDIO, 0, 99, 1 << 20)] == [18, 19]
    assert 20_000 < sum(file.stat().st_size for file in tmp_path.rglob("*.blob")) < 30_000


async def test_records_between_needed_ones_are_removed(aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLE_RECORDS", 2)
    aged.declare("audio", 1)
    folded, references = 9, [1, 5, 7]

    def needed(tp: TopicPartition, start: int, stop: int, most: int | None) -> list[int]:
        assert tp == AUDIO
        stop = min(stop, folded)
        return [*(offset for offset in references if start <= offset < stop), stop]

    maintenance = Maintenance(aged, needed=needed)
    aged.trim(AUDIO, 1)

    async def offsets() -> list[int]:
        maintenance.make_holes(AUDIO)
        await aged.flush()
        return [offset for offset in range(20) if aged.store.get(aged._partitions[AUDIO].key(offset))]

    assert await offsets() == list(range(1, 10)), "those that came since the last call stay"
    assert await offsets() == [1, 5, 6, 7, 8, 9], "2 to 4 are a hole; 6 alone is too short"
    for _ in range(4):
        await aged.append("audio", 0, b"k", b"v")
    assert await offsets() == [1, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    folded, references = 12, [5]
    assert await offsets() == [1, 5, 6, 7, 12, 13], "7 was needed when its range was examined"


@pytest.mark.parametrize(("dirty_records", "thorough", "left"), [(11, False, 10), (10, False, 1), (11, True, 1)])
async def test_compaction_waits_for_enough_dirty_records_or_a_thorough_round(
    aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, dirty_records: int, thorough: bool, left: int
) -> None:
    monkeypatch.setattr(module, "DIRTY_RECORDS", dirty_records)
    await Maintenance(aged).round(thorough=thorough)
    assert len(aged.read(ROWS, 0, 99, 999)) == left


async def test_mostly_clean_partition_is_not_compacted(aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRTY_RECORDS", 1)
    for number in range(30):
        append_soon(aged, "rows", 0, b"%d" % number, b"v")
    await aged.flush()
    maintenance = Maintenance(aged)
    await maintenance.round()
    for _ in range(5):
        append_soon(aged, "rows", 0, b"again", b"v")
    await aged.flush()
    await maintenance.round()
    assert aged.dirty(ROWS) == (5, 31)


async def test_log_that_cannot_go_on_ends_its_node(aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_SECONDS", 0.0)
    aged.store._db.rocks = FailingRocks(aged.store._db.rocks, "write", "a fault")  # type: ignore[assignment]
    with pytest.raises(LogError):
        await aged.append("rows", 0, b"a", b"v")
    with pytest.raises(LogError, match="a fault"):
        await asyncio.wait_for(Maintenance(aged).run(), 60)


async def test_maintenance_continues_after_failed_round(aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_SECONDS", 0.0)
    maintenance = Maintenance(aged)
    failing = mock.AsyncMock(side_effect=LogError("busy"))
    monkeypatch.setattr(maintenance, "round", failing)
    task = asyncio.create_task(maintenance.run())
    await until(lambda: failing.await_count >= 3)
    task.cancel()
