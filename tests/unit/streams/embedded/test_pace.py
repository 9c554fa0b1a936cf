"""How groups are cut: what nobody waits for joins others, a busy log writes few large groups, a lone append goes."""

from __future__ import annotations

import asyncio

import pytest

from streams.embedded import writer
from streams.embedded.log import EmbeddedLog
from tests.unit.streams.appending import append_soon
from tests.unit.streams.clocks import turn_clock
from tests.unit.streams.embedded.conftest import Reopen


async def test_rows_that_nobody_waits_for_share_the_group_of_the_next_append(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PATIENCE", 3600.0)
    for _ in range(3):
        append_soon(log, "t", 0, b"k", b"v")
        await asyncio.sleep(0)
    assert log.stats.groups == 0
    await log.append("t", 0, b"k", b"v")
    assert (log.stats.groups, log.stats.records) == (1, 4)


async def test_rows_that_nobody_waits_for_are_written_all_the_same(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PATIENCE", 0.0)
    written = asyncio.Event()
    log.deliver({"t"}, lambda tp, records: written.set())
    for expected in (1, 2):
        append_soon(log, "t", 0, b"k", b"v")
        await asyncio.wait_for(written.wait(), 10)
        written.clear()
        assert log.stats.records == expected


async def test_a_flush_does_not_wait_for_patience(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE", 3600.0)
    append_soon(log, "t", 0, b"k", b"v")
    await asyncio.wait_for(log.flush(), 10)
    assert log.stats.records == 1


async def test_what_comes_soon_after_a_group_waits_for_its_pace(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PACE", 3600.0)
    monkeypatch.setattr(writer, "SLOWEST_PACE", 60.0)
    log = await reopen(sync=True)
    await log.append("t", 0, b"k", b"v")
    one = log.append("t", 0, b"k", b"v")
    await asyncio.sleep(0)
    two = log.append("t", 0, b"k", b"v")
    await asyncio.sleep(0.01)
    assert (one.done(), log.stats.groups) == (False, 1)
    turn_clock(monkeypatch, 60)
    await asyncio.gather(one, two)
    assert (log.stats.groups, log.stats.records) == (2, 3)
