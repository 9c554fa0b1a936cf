"""Counts of what holders have, for bounds on it."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

#: Who has it: for example an organization, and a project in it; () for all together.
Names = tuple[str, ...]


class Tally(Protocol):
    """Counts by name. Loop only."""

    def add(self, names: Names, number: int) -> None:
        """Add to a count, or subtract."""

    def total(self, names: Names) -> int:
        """Return a count, at most as large as a bound allows; it may be too large, but never too small."""


class OwnTally:
    """Implements `Tally` for a process alone."""

    def __init__(self) -> None:
        self._counts: Counter[Names] = Counter()

    def add(self, names: Names, number: int) -> None:
        self._counts[names] += number
        if not self._counts[names]:
            del self._counts[names]

    def total(self, names: Names) -> int:
        return self._counts[names]


class Published:
    """A tally of what this process counts otherwise: it publishes its counts, and reads those of others. Loop only."""

    def __init__(self, tally: Tally | None) -> None:
        """Publish in a tally; None if there are no others."""
        self._tally = tally
        self._told: dict[str, int] = {}

    def others(self, name: str) -> int:
        """Return what the others have published of a name."""
        return 0 if self._tally is None else max(0, self._tally.total((name,)) - self._told.get(name, 0))

    def publish(self, name: str, own: int) -> None:
        """Publish the own count of a name, with what is about to be added."""
        if self._tally is not None and (change := own - self._told.get(name, 0)):
            self._tally.add((name,), change)
            self._told[name] = own

    def refresh(self, own: Callable[[str], int]) -> None:
        """Publish again what was published before."""
        for name in list(self._told):
            self.publish(name, own(name))
            if not self._told[name]:
                del self._told[name]


class Tallies(Protocol):
    """Makes tallies."""

    def __call__(self, kind: str) -> Tally:
        """Return the tally of a kind of thing, such as uploads; one for each name."""


def own_tallies(kind: str) -> Tally:
    """Return a tally for a process alone."""
    return OwnTally()
