"""Compaction: the last record of each key stays, and nothing that somebody still has to learn goes."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.embedded import compaction
from streams.embedded.compaction import Compaction
from streams.embedded.log import EmbeddedLog
from tests.unit.streams.appending import append_soon
from tests.unit.streams.clocks import HandClock
from tests.unit.streams.embedded.conftest import Reopen
from tests.unit.streams.embedded.naive import compacted
from topics.catalog import TopicPartition

T0 = TopicPartition("rows", 0)
ALL = 1 << 30


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "PAUSE", 0)


@pytest.fixture(params=[0, 1 << 20], ids=["database", "memory"])
def rows(
    request: pytest.FixtureRequest,
    reopen: Reopen,
    loop: asyncio.Runner,
) -> EmbeddedLog:
    log = loop.run(reopen(cache_bytes=request.param))
    log.declare("rows", 1, compact=True)
    return log


async def put(log: EmbeddedLog, pairs: str) -> None:
    """Append records written as `a1 b2 a-`: key, then value or a tombstone; `-1` has no key."""
    for key, value in map(tuple, pairs.split()):
        append_soon(log, "rows", 0, None if key == "-" else key.encode(), None if value == "-" else value.encode())
    await log.flush()


def kept(log: EmbeddedLog) -> str:
    return " ".join(f"{(r.key or b'-').decode()}{(r.value or b'-').decode()}" for r in log.read(T0, 0, ALL, ALL))


@pytest.mark.parametrize(
    ("pairs", "left", "removed"),
    [
        ("a1 b1 a2 a3", "b1 a3", 2),
        ("a1 b1 c1", "a1 b1 c1", 0),
        ("-1 a1 -2 a2", "-1 -2 a2", 1),
        ("a1 a- b1", "a- b1", 1),
        ("a1", "a1", 0),
    ],
)
async def test_the_last_record_of_each_key_stays(rows: EmbeddedLog, pairs: str, left: str, removed: int) -> None:
    await put(rows, pairs)
    assert rows.compact(T0) == removed
    assert kept(rows) == left
    assert rows.compact(T0) == 0


async def test_offsets_stay_and_the_end_is_reached(rows: EmbeddedLog, reopen: Reopen) -> None:
    await put(rows, "a1 a2 b1 a3 b2")
    rows.compact(T0)
    assert [record.offset for record in rows.read(T0, 0, ALL, ALL)] == [3, 4]
    assert rows.get(T0, 0) is None
    assert rows.dirty(T0) == (0, 2)
    again = await reopen()
    assert kept(again) == "a3 b2"
    assert (again.end(T0), again.dirty(T0)) == (5, (0, 2))
    await put(again, "b3")
    assert again.compact(T0) == 1
    assert kept(again) == "a3 b3"


async def test_tombstones_go_when_every_table_had_time_to_see_them(
    rows: EmbeddedLog, clock: HandClock, reopen: Reopen
) -> None:
    await put(rows, "a1 a- b1")
    clock.now += 7200
    again = await reopen()
    again.declare("rows", 1, compact=True)
    again.compact(T0)
    assert kept(again) == "a- b1", "opened just now: a table that replays from before may not have seen it"
    clock.now += 3601
    await put(again, "c1 c- d1")
    again.compact(T0)
    assert kept(again) == "b1 c- d1"


async def test_the_last_record_stays_even_as_an_old_tombstone(rows: EmbeddedLog, clock: HandClock) -> None:
    await put(rows, "a1 a-")
    clock.now += 9999
    rows.compact(T0)
    assert kept(rows) == "a-"
    assert rows.end(T0) == 2


@settings(max_examples=50, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcde-"), st.sampled_from("12-")), min_size=1, max_size=60),
    map_keys=st.integers(1, 6),
    slice_=st.integers(1, 7),
    cut=st.integers(0, 60),
)
def test_any_history_is_compacted_as_the_naive_twin_says(
    pairs: list[tuple[str, str]], map_keys: int, slice_: int, cut: int
) -> None:
    history = [f"{key}{value}" for key, value in pairs]
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as loop, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SLICE", slice_)
        patch.setattr(compaction, "PAUSE", 0)
        log = EmbeddedLog.open(Path(directory), sync=False, cache_bytes=0)
        log.declare("rows", 1, compact=True)
        for part in (history[:cut], history[cut:]):
            loop.run(put(log, " ".join(part)))
            before = log.read(T0, 0, ALL, ALL)
            small_pass(log, map_keys)
            assert log.read(T0, 0, ALL, ALL) == compacted(before)
        loop.run(log.close())


def small_pass(log: EmbeddedLog, map_keys: int) -> int:
    partition = log._partitions[T0]
    partition.sparse = True
    return Compaction(log.store, partition, lambda: False, tombstones_before_ms=0, map_keys=map_keys).run()


async def test_a_closing_log_stops_the_pass(rows: EmbeddedLog) -> None:
    await put(rows, "a1 a2 b1")
    partition = rows._partitions[T0]
    assert Compaction(rows.store, partition, lambda: True, tombstones_before_ms=0).run() == 0
    assert rows.dirty(T0) == (3, 0)
