"""Which offsets of a command topic still hold audio that an analysis may need: the log is trimmed below them."""

import heapq
from typing import Final

#: Released offsets that may still stand in the order of those that are held.
SLACK: Final = 1024


class References:
    """The live offsets of one partition of one topic, with the lowest one at hand. Loop only."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        self._order: list[int] = []

    def add(self, offset: int) -> None:
        if offset not in self._live:
            self._live.add(offset)
            heapq.heappush(self._order, offset)

    def discard(self, offset: int) -> None:
        """Let an offset go; allowed twice."""
        self._live.discard(offset)
        # Nobody asks for the lowest one on Kafka, which trims by time.
        if len(self._order) > 2 * len(self._live) + SLACK:
            self._order = sorted(self._live)

    def held(self, offset: int) -> bool:
        return offset in self._live

    def lowest(self) -> int | None:
        while self._order and self._order[0] not in self._live:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None
