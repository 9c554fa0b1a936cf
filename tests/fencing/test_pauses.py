"""Pauses with rows in flight; the long form has every kind of fault."""

from pathlib import Path

import pytest

from tests.fencing.campaign import campaign
from tests.fencing.faults import plan
from tests.fencing.scene import scene
from tests.lengths import SEED, length

PAUSES = length("PAUSES", 1)
#: Owner epochs exist mainly for the first one.
KINDS = ["paused, held", *plan(SEED, PAUSES - 1)]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600 + 180 * PAUSES)]


async def test_late_writes_after_takeover_are_ignored(tmp_path: Path) -> None:
    """Late writes of a node after a takeover appear nowhere, not even in tables rebuilt from the changelog."""
    print(f"seed {SEED}")
    rows = []
    # Of several brokers, one leads each partition.
    nodes, brokers = (2, 1) if PAUSES == 1 else (3, 3)
    with scene(tmp_path, nodes, brokers) as stage:
        async for row in campaign(stage, KINDS, SEED):
            print(f"{row.what}: {len(row.ended.kept)} sessions, {row.held} held", *row.wrong)
            rows.append(row)
    assert [row.what.split(" (")[0] for row in rows] == [*KINDS, "compacted", "rebuilt"]
    assert rows[0].held, "no row was in flight"
    assert rows[-1].ended.kept
    assert rows[-1].ended.deleted
    assert not [row for row in rows if row.wrong]
