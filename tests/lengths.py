"""Durations of tests that kill, pause or attack: short in `make test`, long in `make soak`."""

import os
import time
from typing import Final


def length(name: str, short: int) -> int:
    """Return EARSHOT_TEST_`name`, or `short` by default."""
    return int(os.environ.get(f"EARSHOT_TEST_{name}", short))


#: Seed of kill times and of test data; EARSHOT_TEST_SEED repeats a run.
SEED: Final = length("SEED", int(time.time()))
#: Time after which brokers expire a node: the minimum that the service accepts.
SESSION_SECONDS: Final = length("SESSION_SECONDS", 6)
