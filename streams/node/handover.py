"""Partitions that go to other nodes: their commands in flight get their verdicts first."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from streams.node.backend import Membership
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.tasks import Tasks
from streams.ownership import Assignment

log = structlog.get_logger(__name__)

#: Longest time in which commands in flight get their verdicts, and seconds between two looks for them.
VERDICT_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.01
#: Longest time for the group to give the partitions of a node that stops to others.
LEAVE_SECONDS: Final = 8.0


class Handover:
    """Delays assignments that take partitions away, and waits for one that takes all. Loop only."""

    def __init__(
        self, owners: Owners, tasks: Tasks, membership: Membership, assign: Callable[[Assignment], None]
    ) -> None:
        """`assign` applies an assignment at once."""
        self._owners, self._tasks, self._membership, self._assign = owners, tasks, membership, assign
        self._waiting: asyncio.Task[None] | None = None

    async def leave(self) -> bool:
        """Ask the others to take all partitions; return whether they have them, so that requests can be forwarded."""
        owners = self._owners
        self._membership.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while owners.here:
                    await owners.changed()
        log.info("node.handed_over", kept=len(owners.here))
        return not owners.here and bool(owners.elsewhere)

    def begin(self, assignment: Assignment) -> None:
        """Apply an assignment once the commands in flight of partitions that go have their verdicts.

        The next owner folds the same commands meanwhile, and ignores the rows of this one.
        """
        going = [owner for owner in self._owners.all_serving() if owner.number not in assignment.owned]
        if any(owner.awaited for owner in going):
            for owner in going:
                owner.pause()
            self._waiting = self._tasks.spawn(self._wait(going, assignment), "handover")
        else:
            self._assign(assignment)

    async def _wait(self, going: Sequence[PartitionOwner], assignment: Assignment) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(VERDICT_SECONDS):
                while any(owner.awaited for owner in going):  # noqa: ASYNC110 (it takes a moment)
                    await asyncio.sleep(LOOK_SECONDS)
        self._waiting = None
        self._assign(assignment)

    def forget(self) -> list[int]:
        """Forget an assignment that waits; return the partitions that it has paused: they count as gone."""
        if self._waiting is None:
            return []
        self._waiting.cancel()
        self._waiting = None
        return [owner.number for owner in self._owners if owner.paused]
