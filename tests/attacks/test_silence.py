"""A chunk of silence may last half an hour, but takes no more memory than a second."""

from pathlib import Path

import pytest

from tests.attacks.silence import attack
from tests.lengths import length

GROWTH = 64 * 1024 * 1024


pytestmark = pytest.mark.slow


def test_long_silent_chunks_do_not_grow_memory(tmp_path: Path) -> None:
    before, during, after = attack(tmp_path, length("ATTACK_SECONDS", 2))
    assert during - before <= GROWTH
    assert after - before <= GROWTH
