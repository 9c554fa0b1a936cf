"""The clock of the live path. Whatever waits for company on it waits for a tick of this clock."""

from typing import Final

#: Seconds between two ticks.
TICK: Final = 0.02


def until_tick(now: float, tick: float = TICK) -> float:
    """Return the seconds from a time of the loop to the next tick that is at least half a tick away.

    All ticks are multiples of the same time, so whatever waits for one wakes the loop together.
    """
    left = tick - now % tick
    return left if left > tick / 2 else left + tick
