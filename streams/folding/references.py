"""Which offsets of a command topic still hold audio that an analysis may need: the log is trimmed below them."""

from __future__ import annotations

import heapq
from collections import defaultdict


class References:
    """The live offsets of each partition of one topic, with the lowest one at hand."""

    def __init__(self) -> None:
        self._live: defaultdict[int, set[int]] = defaultdict(set)
        self._order: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, partition: int, offset: int) -> None:
        """Hold an offset."""
        if offset not in self._live[partition]:
            self._live[partition].add(offset)
            heapq.heappush(self._order[partition], offset)

    def discard(self, partition: int, offset: int) -> None:
        """Let an offset go; allowed twice."""
        self._live[partition].discard(offset)

    def lowest(self, partition: int) -> int | None:
        """Return the lowest offset held, None when there is none."""
        order, live = self._order[partition], self._live[partition]
        while order and order[0] not in live:
            heapq.heappop(order)
        return order[0] if order else None

    def clear(self) -> None:
        """Drop everything: the partitions went away, and are looked through again if they come back."""
        self._live.clear()
        self._order.clear()
