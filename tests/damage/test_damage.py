"""Cases of damage to one file; the long form has more of them."""

import asyncio
from pathlib import Path

import pytest

from tests.damage.campaign import FINE, READY, REFUSED, campaign, count
from tests.lengths import SEED, length

CASES = length("CASES", 25)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 5 * CASES)]


def test_damage_is_repaired_or_reported(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    counts = count(asyncio.run(campaign(tmp_path, CASES, SEED)))
    print(counts)
    assert counts[READY]
    assert counts[REFUSED]
    assert counts.keys() <= FINE
