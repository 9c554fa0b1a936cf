"""Which offset may be committed: never one above a record that is still in work.

Stock Faust commits the first run of acknowledged offsets it sees, also when a record before that run is still being
worked on. Here every delivery is remembered in order, and the committed offset stops below the oldest one not done.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Delivery:
    first: int
    next: int
    #: When it was handed over, in monotonic seconds.
    at: float
    done: bool = False


class Deliveries:
    """What was handed to the agent of one partition, in offset order."""

    def __init__(self) -> None:
        self._deliveries: deque[_Delivery] = deque()
        self._by_first: dict[int, _Delivery] = {}
        self._committable: int | None = None

    def add(self, first: int, following: int) -> None:
        """Records [first, following) were handed to an agent."""
        delivery = _Delivery(first, following, time.monotonic())
        self._deliveries.append(delivery)
        self._by_first[first] = delivery

    def finish(self, first: int, following: int) -> bool:
        """The agent is done with [first, following); False when no such delivery is in work.

        A delivery from before a seek may end after it, when a longer one with the same first record is in work.
        """
        delivery = self._by_first.get(first)
        if delivery is None or delivery.next != following:
            return False
        delivery.done = True
        while self._deliveries and self._deliveries[0].done:
            finished = self._deliveries.popleft()
            del self._by_first[finished.first]
            self._committable = finished.next
        return True

    @property
    def committable(self) -> int | None:
        """The offset that may be committed, None while nothing is done."""
        return self._committable

    @property
    def oldest_since(self) -> float | None:
        """When the oldest delivery that is not done was handed over (monotonic seconds), None when all are."""
        return self._deliveries[0].at if self._deliveries else None

    def __len__(self) -> int:
        return len(self._deliveries)
