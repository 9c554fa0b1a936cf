"""The offsets of a command topic with audio that an analysis may need: the log is trimmed below them."""

import heapq
from typing import Final

#: Released offsets that the heap may still contain.
SLACK: Final = 1024


class References:
    """Holds the live offsets of one partition of a topic, with quick access to the lowest. Loop only."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        self._order: list[int] = []

    def add(self, offset: int) -> None:
        if offset not in self._live:
            self._live.add(offset)
            heapq.heappush(self._order, offset)

    def discard(self, offset: int) -> None:
        """Release an offset. Idempotent."""
        self._live.discard(offset)
        # On Kafka, which trims by time, `lowest` is never called to shrink the heap.
        if len(self._order) > 2 * len(self._live) + SLACK:
            self._order = sorted(self._live)

    def held(self, offset: int) -> bool:
        return offset in self._live

    def within(self, start: int, stop: int) -> list[int]:
        """Return the live offsets in [start, stop), in order."""
        return sorted(offset for offset in self._live if start <= offset < stop)

    def __len__(self) -> int:
        return len(self._live)

    def lowest(self) -> int | None:
        while self._order and self._order[0] not in self._live:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None
