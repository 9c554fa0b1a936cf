"""Decoders that crash, hang, swell, spin or are killed lose only their own chunks."""

import pytest

from streams.audio.decode import BROKEN_LIMIT
from streams.processes.deaths import DEADLY
from tests.attacks.decoders import attack
from tests.lengths import length

#: A multiple of forty, so that the four faults are equally frequent.
CHUNKS = length("FAULTY_CHUNKS", 200)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CHUNKS)]


def test_faulty_chunks_lose_only_themselves() -> None:
    outcome = attack(CHUNKS)
    assert outcome.said == {None: CHUNKS * 9 // 10, DEADLY: CHUNKS // 20, BROKEN_LIMIT: CHUNKS // 20}
    assert outcome.descriptors == 0
