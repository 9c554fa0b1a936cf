"""The end of a rebalance, and a batch whose partition went away while it was in work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.driver.application import Application
from tests.unit.streams.driver.applications import options


@pytest.mark.parametrize(("rebalance", "ordered", "ends"), [(1, False, 0), (2, True, 0), (2, False, 1)])
def test_the_recovery_of_an_earlier_assignment_is_no_end(
    tmp_path: Path, rebalance: int, ordered: bool, ends: int
) -> None:
    regained: list[None] = []

    async def scene() -> None:
        app = Application(options(tmp_path), lambda error: None, SimpleNamespace())
        app.on_rebalance(lambda: None, lambda: regained.append(None))
        app.rebalancing_count, app.tables._rebalance = 2, rebalance
        if ordered:
            app.tables.recovery.signal_recovery_start.set()
        app.on_rebalance_end()

    asyncio.run(scene())
    assert len(regained) == ends


@pytest.mark.parametrize("generation", [2, 3])
def test_a_batch_of_a_partition_that_went_away_may_fail(tmp_path: Path, generation: int) -> None:
    failures: list[BaseException] = []
    app = Application(options(tmp_path), failures.append, SimpleNamespace())
    app.consumer_generation_id = generation
    event = SimpleNamespace(message=SimpleNamespace(generation_id=generation, partition=0), value=[])

    async def fail(partition: int, records: Any) -> None:
        app.consumer_generation_id = 3
        raise OSError("the table is closed")

    if generation == 2:
        asyncio.run(app._guarded(fail, event))
        assert failures == []
        return
    with pytest.raises(OSError, match="the table is closed"):
        asyncio.run(app._guarded(fail, event))
    assert {str(failure) for failure in failures} == {"the table is closed"}
