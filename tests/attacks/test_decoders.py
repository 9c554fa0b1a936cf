"""Decoders that crash, hang, swell or spin, and are killed as well, cost their own chunks and nothing else."""

from __future__ import annotations

import pytest

from streams.audio.decode import BROKEN_LIMIT
from streams.decoders.pool import DIED, MAX_IDLE
from tests.attacks.decoders import attack


@pytest.mark.slow
def test_every_tenth_chunk_of_a_thousand() -> None:
    outcome = attack(1000)
    assert outcome.exact == 900
    assert outcome.said == {DIED: 50, BROKEN_LIMIT: 50}
    assert outcome.descriptors == 0
    assert outcome.decoders <= MAX_IDLE
