"""The partitions of this node by number, and the URLs of the other owners."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from streams.node.owner import PartitionOwner
from topics import keys
from topics.errors import NotOwned, Unavailable
from topics.ports.lists import Coverage

#: Live sessions that fill a partition's batches; further sessions go to the next partition.
FULL: Final = 128


class Owners:
    """Finds the owner of a session or job, here or elsewhere. Loop only."""

    def __init__(
        self,
        partitions: int,
        may_append: Callable[[], bool] = lambda: True,
        may_read: Callable[[], bool] = lambda: True,
        failure: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Start without owned partitions.

        `may_append` returns whether this node certainly still owns its partitions, `may_read` whether the group counted
        it lately, `failure` why the node is stopping.
        """
        self.may_append = may_append
        self.may_read = may_read
        self._failure = failure
        self.partitions = partitions
        self.here: dict[int, PartitionOwner] = {}
        #: URLs of the owners of other partitions, by number.
        self.elsewhere: Mapping[int, str] = {}
        #: URLs of the other nodes, also without partitions, and the group's generation, by that assignment.
        self.others: frozenset[str] = frozenset()
        self.generation = 0
        #: The node is about to stop, and gives new sessions and jobs to others.
        self.leaving = False
        #: URLs of the other nodes that stand by for a partition, by number.
        self.standbys_elsewhere: Mapping[int, Sequence[str]] = {}
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[PartitionOwner]:
        return iter(list(self.here.values()))

    def number(self, id: str) -> int:
        return keys.partition_of(id, self.partitions)

    def serving(self, id: str) -> PartitionOwner:
        number = keys.partition_of(id, self.partitions)
        owner = self.here.get(number)
        if owner is None:
            raise NotOwned(f"partition {number} is another node's")
        if not owner.serving:
            raise Unavailable(f"partition {number} has no ready owner here: {owner.stopped or owner.waiting}")
        if not self.may_append():
            raise Unavailable("this node has no contact with the others, and may have lost its partitions")
        if self._failure() is not None:
            # The log or the database may be gone: anything acknowledged now would be lost.
            raise Unavailable("this node has failed and is about to stop")
        return owner

    def for_reading(self, id: str) -> PartitionOwner:
        """Return the owner that serves an id if its rows may be shown now."""
        owner = self.serving(id)
        self._check_lease()
        return owner

    def all_for_reading(self) -> list[PartitionOwner]:
        self._check_lease()
        return self.all_serving()

    def _check_lease(self) -> None:
        if not self.may_read():
            raise Unavailable("this node had no contact with the others for some seconds: what it has may be outdated")

    def is_moving(self, id: str) -> bool:
        """Return whether an id's partition is being taken over here, or no node is known to own it."""
        number = keys.partition_of(id, self.partitions)
        owner = self.here.get(number)
        return number not in self.elsewhere if owner is None else owner.is_coming

    def plan(self) -> bytes:
        """Return the version of the assignment of partitions to nodes; a greater one is newer."""
        return b"%010d" % self.generation

    async def changed(self) -> None:
        """Wait until an owner is added or removed, or begins or ceases to serve."""
        await self._changed.wait()

    def note_change(self) -> None:
        """Wake `changed`."""
        self._changed.set()
        self._changed = asyncio.Event()

    def url(self, id: str) -> str | None:
        """Return the URL of the node that owns an id's partition, or None if it is this one or unknown."""
        number = keys.partition_of(id, self.partitions)
        return None if number in self.here else self.elsewhere.get(number)

    def all_serving(self) -> list[PartitionOwner]:
        return [owner for owner in self if owner.serving]

    def stopped(self) -> int:
        """Return how many partitions here wait for an operator."""
        return sum(owner.stopped is not None for owner in self)

    def coverage(self) -> Coverage:
        """Return the partitions that this node can list (none while other nodes may own them), and the other owners."""
        here = frozenset(owner.number for owner in self.all_serving()) if self.may_read() else frozenset()
        elsewhere = {url for number, url in self.elsewhere.items() if number not in here}
        return Coverage(here, self.partitions, frozenset(elsewhere))

    def host(self) -> str | None:
        """Return the URL of another node for new sessions and jobs; None if this one takes them, or knows no other."""
        if self.all_serving() and not self.leaving:
            return None
        others = [url for number, url in self.elsewhere.items() if number not in self.here]
        return random.choice(others) if others else None

    def new_id(self) -> str:
        """Return a new id in a partition that this node serves, so that no request for it is forwarded.

        Use the busiest partition until its batches are full. A batch costs the same with few records or many, so
        sessions spread thinly cost more.

        Raises:
            Unavailable: this node serves no partition.
        """
        live = {owner.number: owner.live() for owner in self.all_serving()}
        if not live:
            why = next((f": {owner.stopped}" for owner in self if owner.stopped), "")
            raise Unavailable(f"this node serves no partition{why}" if self.here else "this node has no partitions yet")
        roomy = [number for number, count in live.items() if count < FULL]
        fullest_first = sorted(roomy or live, key=lambda number: (-live[number], number))
        owner = self.here[fullest_first[0 if roomy else -1]]
        id = keys.new_id(owner.number, self.partitions)
        owner.touch(id)
        return id
