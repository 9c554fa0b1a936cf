"""A mapping that forgets what was not used for longest once it weighs too much."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(value: object) -> int:
    return 1


class Lru(Generic[K, V]):
    """At most `capacity` of weight, each value weighing `weigh(value)` (1 unless told)."""

    def __init__(self, capacity: int, weigh: Callable[[V], int] = _one) -> None:
        self._capacity = capacity
        self._weigh = weigh
        self._values: OrderedDict[K, V] = OrderedDict()
        self.weight = 0

    def get(self, key: K) -> V | None:
        """Return the value, which counts as a use, or None."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep the value, in place of an earlier one, at the expense of the oldest."""
        self.drop(key)
        self._values[key] = value
        self.weight += self._weigh(value)
        while self.weight > self._capacity:
            self.weight -= self._weigh(self._values.popitem(last=False)[1])

    def drop(self, key: K) -> None:
        """Forget the key; allowed when it is not there."""
        if key in self._values:
            self.weight -= self._weigh(self._values.pop(key))
