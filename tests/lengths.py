"""How long tests go on that kill, pause or attack: short in `make test`, long in `make soak`."""

import os
import time
from typing import Final


def length(name: str, short: int) -> int:
    """Return EARSHOT_TEST_`name`, or the length that a short run has."""
    return int(os.environ.get(f"EARSHOT_TEST_{name}", short))


#: What decides when something dies, and what is sent; EARSHOT_TEST_SEED repeats a run.
SEED: Final = length("SEED", int(time.time()))
#: After how long the brokers give up on a node: the least that the service takes.
SESSION_SECONDS: Final = length("SESSION_SECONDS", 6)
