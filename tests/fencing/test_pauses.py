"""One pause with rows in flight; `python -m tests.fencing --pauses 50` has every kind of pause."""

import asyncio
from pathlib import Path

import pytest

from tests.fencing.campaign import Row, campaign
from tests.fencing.scene import scene
from tests.lengths import SEED

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

#: Owner epochs exist mainly for this.
KINDS = ["paused, held"]


async def _rows(directory: Path) -> list[Row]:
    with scene(directory, nodes=2) as stage:
        return [row async for row in campaign(stage, KINDS, SEED)]


def test_late_writes_after_takeover_are_ignored(tmp_path: Path) -> None:
    """Late writes of a node after a takeover appear nowhere, not even in tables rebuilt from the changelog."""
    print(f"seed {SEED}")
    rows = asyncio.run(_rows(tmp_path))
    assert [row.what.split(" (")[0] for row in rows] == [*KINDS, "compacted", "rebuilt"]
    assert all(row.held for row in rows[: len(KINDS)]), "no row was in flight"
    assert rows[-1].sessions > 0
    assert rows[-1].deleted > 0
    for row in rows:
        assert row.refused == [], row
        assert row.findings.wrong == [], row
