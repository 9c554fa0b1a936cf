"""Limits what a project, an organization and all of them together may have at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from topics.errors import Unavailable
from topics.tally import OwnTally, Tally
from topics.turns import Holder


class Places(msgspec.Struct, frozen=True):
    """How many places there are, and the error past them."""

    number: int
    full: str


class HolderQuota:
    """Counts places by project and organization. Loop only."""

    def __init__(
        self, project: Places, organization: Places, total: Places, retry_after: int, tally: Tally | None = None
    ) -> None:
        """Give places to a project, to an organization with all its projects, and to all. `retry_after` is in s.

        `tally` has the places of other lanes too.
        """
        self._places = total, organization, project
        self._retry_after = retry_after
        #: By the names of the holder: none for all, the organization, the organization and the project.
        self._held = tally or OwnTally()
        #: Number of places taken here, without those of other lanes.
        self.used = 0

    def take(self, holder: Holder) -> None:
        """Take a place.

        Raises:
            Unavailable: the project, the organization, or all together, have all places.
        """
        for names, places in reversed(list(enumerate(self._places))):
            if self._held.total(holder[:names]) >= places.number:
                raise Unavailable(places.full, self._retry_after)
        self._count(holder, 1)

    def give_back(self, holder: Holder) -> None:
        self._count(holder, -1)

    def _count(self, holder: Holder, number: int) -> None:
        self.used += number
        for names in range(len(self._places)):
            self._held.add(holder[:names], number)

    @contextmanager
    def place(self, holder: Holder) -> Iterator[None]:
        """Hold a place.

        Raises:
            Unavailable: as `take`.
        """
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)
