"""The partitions that this node owns, by number, and who owns the others."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from streams.node.owner import PartitionOwner
from topics import keys
from topics.errors import NotOwned, Unavailable
from topics.ports.lists import Coverage

#: So many live sessions fill the batches of a partition; further ones go to the next.
FULL: Final = 128


class Owners:
    """Finds the owner of a session or job, here or elsewhere. Loop only."""

    def __init__(
        self,
        partitions: int,
        may_append: Callable[[], bool] = lambda: True,
        failure: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Own none of `partitions` yet.

        `may_append` says whether nobody else can own what is owned here, `failure` why the node is about to end.
        """
        self.may_append = may_append
        self._failure = failure
        self.partitions = partitions
        self.here: dict[int, PartitionOwner] = {}
        #: Where the owners of other partitions answer, by number.
        self.elsewhere: Mapping[int, str] = {}
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
            raise Unavailable("this node has not heard of the others, and may have lost its partitions")
        if self._failure() is not None:
            # The log or the database may be gone: what is acknowledged now would be lost.
            raise Unavailable("this node has failed and is about to stop")
        return owner

    async def ready(self, id: str, seconds: float) -> PartitionOwner:
        """Return the owner that serves an id; wait while it gets ready here. Raise Unavailable after `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (owner := self.here.get(self.number(id))) is not None and owner.is_coming and loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                break
        return self.serving(id)

    def note_change(self) -> None:
        """An owner has begun to serve, came, or went."""
        self._changed.set()
        self._changed = asyncio.Event()

    def url(self, id: str) -> str | None:
        """Return the URL of another node that owns an id's partition, as of the last assignment."""
        number = keys.partition_of(id, self.partitions)
        return None if number in self.here else self.elsewhere.get(number)

    def all_serving(self) -> list[PartitionOwner]:
        return [owner for owner in self if owner.serving]

    def coverage(self) -> Coverage:
        """Return which partitions can be listed here, none while others may own them, and who has the others."""
        here = frozenset(owner.number for owner in self.all_serving()) if self.may_append() else frozenset()
        elsewhere = {url for number, url in self.elsewhere.items() if number not in here}
        return Coverage(here, self.partitions, frozenset(elsewhere))

    def new_id(self) -> str:
        """Return a new id in a partition that this node serves: its work is done where it was requested.

        The partition that is written most is taken until its batches are full: what a batch costs does not depend on
        how many records are in it, so sessions that are spread thinly cost more.

        Raises:
            Unavailable: it serves none.
        """
        live = {owner.number: owner.live() for owner in self.all_serving()}
        if not live:
            raise Unavailable("this node serves no partition" if self.here else "this node has no partitions yet")
        roomy = [number for number, count in live.items() if count < FULL]
        fullest_first = sorted(roomy or live, key=lambda number: (-live[number], number))
        owner = self.here[fullest_first[0 if roomy else -1]]
        id = keys.new_id(owner.number, self.partitions)
        owner.touch(id)
        return id
