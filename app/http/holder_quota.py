"""Limits what a holder, such as a project, and all holders together may have at a time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from topics.errors import Unavailable


class HolderQuota:
    """Counts places by holder. Loop only."""

    def __init__(self, each: int, total: int, each_full: str, full: str, retry_after: int) -> None:
        """Give `each` places to a holder and `total` to all; the texts say why there is none. `retry_after` is in s."""
        self.each = each
        self.total = total
        self._texts = each_full, full
        self._retry_after = retry_after
        self._held: Counter[str] = Counter()

    @property
    def used(self) -> int:
        """Number of places taken."""
        return self._held.total()

    def take(self, holder: str) -> None:
        """Take a place.

        Raises:
            Unavailable: the holder, or all together, have all places.
        """
        each_full, full = self._texts
        if self._held[holder] >= self.each:
            raise Unavailable(each_full, self._retry_after)
        if self.used >= self.total:
            raise Unavailable(full, self._retry_after)
        self._held[holder] += 1

    def give_back(self, holder: str) -> None:
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]

    @contextmanager
    def place(self, holder: str) -> Iterator[None]:
        """Hold a place.

        Raises:
            Unavailable: as `take`.
        """
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)
