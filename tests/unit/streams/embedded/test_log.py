"""The log: what is appended is read back, in order, once it is durable, and after a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from streams.embedded import layout
from streams.embedded.errors import LogError, LogLocked
from streams.embedded.log import EmbeddedLog
from streams.log import StoredRecord
from tests.unit.streams.appending import append_soon
from tests.unit.streams.clocks import HandClock
from tests.unit.streams.embedded.conftest import Reopen
from topics.catalog import TopicPartition
from topics.errors import Unavailable

T0 = TopicPartition("t", 0)
ALL = 1 << 30


async def fill(log: EmbeddedLog, count: int, size: int = 10, partition: int = 0) -> None:
    for number in range(count):
        append_soon(log, "t", partition, b"k%d" % number, bytes([number % 256]) * size)
    await log.flush()


def offsets(log: EmbeddedLog, start: int = 0, tp: TopicPartition = T0) -> list[int]:
    return [record.offset for record in log.read(tp, start, ALL, ALL)]


async def test_records_come_back_in_order_with_offsets(log: EmbeddedLog) -> None:
    acks = await asyncio.gather(*(log.append("t", 0, None if n else b"", b"%d" % n) for n in range(5)))
    assert acks == [(n, 1_000_000) for n in range(5)]
    expected = [StoredRecord(n, 1_000_000, None if n else b"", b"%d" % n) for n in range(5)]
    assert log.read(T0, 0, ALL, ALL) == expected
    assert log.read(T0, 3, 1, ALL) == expected[3:4]
    assert log.read(T0, 5, ALL, ALL) == []
    assert (log.earliest(T0), log.end(T0), log.end(TopicPartition("t", 1))) == (0, 5, 0)
    assert [log.get(T0, n) for n in range(6)] == [*expected, None]


async def test_nothing_is_visible_before_it_is_durable(log: EmbeddedLog) -> None:
    future = log.append("t", 0, b"k", b"v")
    assert log.end(T0) == 0
    assert log.get(T0, 0) is None
    assert log.queued_bytes > 0
    await future
    assert log.end(T0) == 1
    assert log.queued_bytes == 0


async def test_a_read_is_bounded_in_bytes_but_gives_one_record(log: EmbeddedLog) -> None:
    await fill(log, 10, size=98)
    assert len(log.read(T0, 0, ALL, 350)) == 3
    assert len(log.read(T0, 0, ALL, 1)) == 1


@pytest.mark.parametrize("size", [10, 20_000])
async def test_all_is_there_after_a_restart(reopen: Reopen, size: int) -> None:
    log = await reopen(sync=True)
    await fill(log, 20, size)
    before = log.read(T0, 0, ALL, ALL)
    again = await reopen()
    assert again.topics() == {"t": 2}
    assert again.read(T0, 0, ALL, ALL) == before
    assert again.get(T0, 7) == before[7]
    await fill(again, 1)
    assert again.end(T0) == 21


@pytest.mark.parametrize("cache_bytes", [0, 2000, 1 << 20])
async def test_memory_and_database_read_the_same(reopen: Reopen, cache_bytes: int) -> None:
    log = await reopen(cache_bytes=cache_bytes)
    for _ in range(4):
        await fill(log, 5, size=100)
    assert offsets(log, 3) == list(range(3, 20))
    assert [record.value for record in log.read(T0, 18, ALL, ALL)] == [b"\x03" * 100, b"\x04" * 100]


async def test_a_reader_at_the_head_does_not_touch_the_database(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(log, 5)
    monkeypatch.setattr(log.store, "scan", None)
    monkeypatch.setattr(log.store, "get", None)
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert log.get(T0, 4) is not None


async def append_one(log: EmbeddedLog) -> tuple[int, int]:
    return await log.append("t", 0, None, b"v")


async def test_log_time_never_runs_backwards(reopen: Reopen, clock: HandClock) -> None:
    log = await reopen()
    assert await append_one(log) == (0, 1_000_000)
    clock.now = 500.0
    assert await append_one(log) == (1, 1_000_000)
    assert await append_one(await reopen()) == (2, 1_000_000)
    clock.now = 2000.0
    assert await append_one(await reopen()) == (3, 2_000_000)


async def test_time_and_offsets_survive_when_all_is_trimmed(reopen: Reopen, clock: HandClock) -> None:
    log = await reopen()
    await append_one(log)
    log.trim(T0, 1)
    await log.flush()
    clock.now = 1.0
    log = await reopen()
    assert (log.earliest(T0), log.end(T0)) == (1, 1)
    assert await append_one(log) == (1, 1_000_000)


async def test_trim_hides_at_once_and_never_lowers(reopen: Reopen) -> None:
    log = await reopen()
    await fill(log, 10)
    log.trim(T0, 4)
    assert offsets(log) == [4, 5, 6, 7, 8, 9]
    assert log.get(T0, 3) is None
    log.trim(T0, 2)
    assert log.earliest(T0) == 4
    log.trim(T0, 99)
    assert (log.earliest(T0), log.end(T0)) == (10, 10)
    await log.flush()
    await fill(log, 1)
    again = await reopen()
    assert offsets(again) == [10]
    assert list(again.store.scan(layout.record_key(1, 0, 0), layout.record_key(1, 0, 10))) == []


async def test_commits_follow_what_was_queued_before(reopen: Reopen) -> None:
    log = await reopen()
    append_soon(log, "t", 0, b"k", b"v")
    future = log.commit("g", {T0: 1})
    assert log.committed("g", T0) is None
    await future
    assert log.end(T0) == 1
    assert log.committed("g", T0) == 1
    again = await reopen()
    assert again.committed("g", T0) == 1
    assert again.committed("other", T0) is None


async def test_what_a_group_made_durable_is_delivered_at_once(log: EmbeddedLog) -> None:
    """Records of a partition in their order, when they can be read; other topics go by."""
    log.declare("other", 1)
    delivered: list[tuple[TopicPartition, list[StoredRecord]]] = []

    def take(tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        assert log.end(tp) == records[-1].offset + 1
        delivered.append((tp, list(records)))

    log.deliver({"t"}, take)
    append_soon(log, "other", 0, b"k", b"v")
    append_soon(log, "t", 1, b"k", b"v")
    await fill(log, 3)
    assert [(tp.partition, [record.offset for record in records]) for tp, records in delivered] == [
        (1, [0]),
        (0, [0, 1, 2]),
    ]
    assert delivered[1] == (T0, log.read(T0, 0, ALL, ALL))
    assert (log.stats.groups, log.stats.records) == (1, 5)
    await fill(log, 1)
    assert [record.offset for record in delivered[-1][1]] == [3]
    assert len(delivered) == 3


async def test_the_counters_count_groups_records_and_bytes(log: EmbeddedLog) -> None:
    await fill(log, 3)
    assert (log.stats.groups, log.stats.records, log.stats.bytes) == (1, 3, 36)


def test_declare_again_is_fine_with_the_same_number_only(log: EmbeddedLog) -> None:
    log.declare("t", 2, compact=True)
    with pytest.raises(LogError, match=r"topic t has 2 partitions .* 3 are asked for"):
        log.declare("t", 3)
    with pytest.raises(LogError, match="no partition 2 of topic t"):
        log.end(TopicPartition("t", 2))


async def test_topics_keep_apart(log: EmbeddedLog) -> None:
    log.declare("u", 1)
    await fill(log, 3, partition=1)
    assert offsets(log, 0, TopicPartition("t", 1)) == [0, 1, 2]
    assert offsets(log) == offsets(log, 0, TopicPartition("u", 0)) == []


async def test_a_full_queue_refuses_bounded_appends_only(reopen: Reopen) -> None:
    log = await reopen(queue_bytes=2000)
    first = log.append("t", 0, None, bytes(1500))
    with pytest.raises(Unavailable, match="queue is full"):
        log.append("t", 0, None, bytes(1500))
    second = log.append("t", 0, None, b"result", bounded=False)
    append_soon(log, "t", 0, None, b"row")
    assert [ack.offset for ack in await asyncio.gather(first, second)] == [0, 1]
    await log.append("t", 0, None, bytes(1500))
    assert log.end(T0) == 4


def test_a_second_opening_names_the_holder(log: EmbeddedLog) -> None:
    with pytest.raises(LogLocked, match=f"in use by process {os.getpid()}"):
        EmbeddedLog.open(log.directory)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path / "log"), Options(raw_mode=True))
    db.put(layout.FORMAT_KEY, b"2")
    db.close()
    with pytest.raises(LogError, match="has format 2, this version reads format 1"):
        EmbeddedLog.open(tmp_path)


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot be used"):
        EmbeddedLog.open(tmp_path / "file")


@pytest.mark.parametrize("missing", [0, 4, 9])
async def test_a_missing_record_is_damage_not_a_hole(reopen: Reopen, missing: int) -> None:
    log = await reopen(cache_bytes=0)
    await fill(log, 10)
    log.store._db.rocks.delete(layout.record_key(1, 0, missing))
    with pytest.raises(LogError, match=f"record {missing} of t/0 is missing"):
        log.read(T0, 0, ALL, ALL)
    with pytest.raises(LogError, match="is missing"):
        log.get(T0, missing)


async def test_after_close_everything_is_refused(log: EmbeddedLog) -> None:
    last = log.append("t", 0, None, b"last")
    await log.close()
    await log.close()
    assert (await last).offset == 0
    with pytest.raises(LogError, match="closed"):
        log.append("t", 0, None, b"late")
    with pytest.raises(LogError, match="closed"):
        await log.flush()
