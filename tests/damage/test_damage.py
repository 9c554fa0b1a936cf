"""A sample of `python -m tests.damage`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage.campaign import NEEDLESS, READY, REFUSED, SILENT, campaign, count

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_no_damage_is_silent_and_tables_are_disposable(tmp_path: Path) -> None:
    counts = count(await campaign(tmp_path, 25, 1))
    assert counts[READY]
    assert counts[REFUSED]
    assert not counts[SILENT] + counts[NEEDLESS]
