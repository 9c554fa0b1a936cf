"""A sample of `python -m tests.damage`."""

import asyncio
from pathlib import Path

import pytest

from tests.damage.campaign import FINE, READY, REFUSED, campaign, count

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_damage_is_repaired_or_reported(tmp_path: Path) -> None:
    counts = count(asyncio.run(campaign(tmp_path, 25, 1)))
    assert counts[READY]
    assert counts[REFUSED]
    assert counts.keys() <= FINE
