"""Counts of all lanes of a machine, in memory that they share, so that a bound is for the machine.

Each lane has a count-min sketch [Cormode, Muthukrishnan, "An improved data stream summary", J. Algorithms 55 (2005)]
that only it writes, and adds those of the others when it reads. Two names that meet in both rows of the sketch count
together, which with 1,000 names happens to one in a thousand: a bound then refuses too early, never too late.
"""

import mmap
from typing import Final

import numpy as np
from xxhash import xxh64_intdigest

from topics.tally import Names

SLOTS: Final = 1 << 15
ROWS: Final = 2
_COUNTS: Final = ROWS * SLOTS
#: Bytes of one lane.
LANE_BYTES: Final = 4 * _COUNTS


class LaneTallies:
    """Implements `topics.tally.Tallies` for one of several lanes."""

    def __init__(self, descriptor: int, count: int, lane: int) -> None:
        memory = mmap.mmap(descriptor, count * LANE_BYTES)
        self._all = np.frombuffer(memory, np.int32).reshape(count, _COUNTS)
        self._own = self._all[lane]

    def __call__(self, kind: str) -> "LaneTally":
        return LaneTally(self._all, self._own, kind)

    def clear(self) -> None:
        """Forget what the lane had; its process has ended."""
        self._own[:] = 0


class LaneTally:
    """Implements `topics.tally.Tally` for all lanes."""

    def __init__(self, everything: np.ndarray, own: np.ndarray, kind: str) -> None:
        self._all, self._own, self._kind = everything, own, kind

    def add(self, names: Names, number: int) -> None:
        self._own[self._slots(names)] += number

    def total(self, names: Names) -> int:
        return int(self._all[:, self._slots(names)].sum(axis=0).min())

    def _slots(self, names: Names) -> list[int]:
        digest = xxh64_intdigest("\0".join((self._kind, *names)).encode())
        return [digest % SLOTS, SLOTS + (digest >> 32) % SLOTS]
