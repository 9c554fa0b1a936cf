"""A short form of `make chaos` on one broker and two nodes, and what it stands on."""

from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.faults import FAULTS, plan
from tests.chaos.history import History
from tests.chaos.scene import scene
from tests.lengths import SEED

KINDS = ["broker killed", "node killed, its tables lost", "node drained", "database locked"]
CHUNKS = 500


def test_seed_gives_the_same_faults() -> None:
    def drawn(seed: int) -> list[tuple[str, float]]:
        return [(kind, chance.random()) for _, kind, chance in islice(plan(seed), 3 * len(FAULTS))]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {kind for kind, _ in drawn(1)[: len(FAULTS)]} == set(FAULTS)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_faults_lose_nothing(tmp_path: Path) -> None:
    """Every page of every session, every read of an open one, every job and the ledger are what they must be."""
    print(f"seed {SEED}")
    with History(tmp_path / "history.jsonl") as history, scene(tmp_path, 2, 1, None) as stage:
        report = await Campaign(stage, history, SEED).run(KINDS, faults=len(KINDS), chunks=CHUNKS)
    print(*report.table(), sep="\n")
    assert not report.wrong
    assert report.counts.keys() == {*KINDS, "end"}
