"""Maintenance: trims by time and by reference, compacts what is worth it, survives trouble."""

from __future__ import annotations

import asyncio

import pytest

from streams.embedded.errors import LogError
from streams.embedded.log import EmbeddedLog
from streams.embedded.maintenance import Maintenance, first_since
from tests.unit.streams.appending import append_soon
from tests.unit.streams.clocks import HandClock
from tests.unit.streams.embedded.conftest import Reopen
from topics.catalog import TopicPartition

AUDIO, ROWS = TopicPartition("audio", 0), TopicPartition("rows", 0)


@pytest.fixture
def aged(reopen: Reopen, clock: HandClock, loop: asyncio.Runner) -> EmbeddedLog:
    """Ten records of audio, ten seconds apart, from 1000 s on; the clock stands at 1090 s."""

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


@pytest.mark.parametrize(("floor", "earliest"), [(None, 5), (0, 5), (3, 5), (8, 8), (99, 10)])
async def test_a_record_goes_by_time_or_when_nobody_needs_it(
    aged: EmbeddedLog, floor: int | None, earliest: int
) -> None:
    maintenance = Maintenance(aged, floor=lambda tp: floor)
    await maintenance.round()
    assert aged.earliest(AUDIO) == earliest
    assert aged.earliest(ROWS) == 0
    await maintenance.reclaim()
    assert len(aged.read(AUDIO, 0, 99, 999)) == 10 - earliest


async def test_without_retention_and_floor_nothing_goes(aged: EmbeddedLog) -> None:
    aged.declare("audio", 1)
    await Maintenance(aged).round()
    assert aged.earliest(AUDIO) == 0


@pytest.mark.parametrize(("dirty_records", "left"), [(11, 10), (10, 1)])
async def test_compaction_waits_until_it_pays(aged: EmbeddedLog, dirty_records: int, left: int) -> None:
    await Maintenance(aged, dirty_records=dirty_records).round()
    assert len(aged.read(ROWS, 0, 99, 999)) == left


async def test_a_mostly_clean_partition_is_left_alone(aged: EmbeddedLog) -> None:
    for number in range(30):
        append_soon(aged, "rows", 0, b"%d" % number, b"v")
    await aged.flush()
    maintenance = Maintenance(aged, dirty_records=1)
    await maintenance.round()
    for _ in range(5):
        append_soon(aged, "rows", 0, b"again", b"v")
    await aged.flush()
    await maintenance.round()
    assert aged.dirty(ROWS) == (5, 31)


async def test_a_failed_round_is_not_the_last(aged: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    maintenance = Maintenance(aged, interval=0.0)
    enough = asyncio.Event()

    async def failing() -> None:
        rounds.append(1)
        if len(rounds) == 3:
            enough.set()
        raise LogError("busy")

    monkeypatch.setattr(maintenance, "round", failing)
    task = asyncio.create_task(maintenance.run())
    await enough.wait()
    task.cancel()
    assert len(rounds) >= 3
