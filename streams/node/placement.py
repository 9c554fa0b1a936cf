"""A membership that is given, and always holds: the partitions of a log that no other process writes."""

from collections.abc import Callable

from streams.ownership import Assignment


class StoredPlacement:
    """Implements `streams.node.backend.Membership` for the embedded log: nobody else can take these partitions.

    Loop only.
    """

    removals = 0
    is_away = False

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    async def start(
        self,
        assigned: Callable[[Assignment], None],
        lost: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        assigned(self._assignment)

    def valid(self) -> bool:
        return True

    def may_read(self) -> bool:
        return True

    def waiting(self) -> str | None:
        return None

    def give_up(self, reason: str) -> None:
        """Do nothing: there is no other assignment."""

    def rejoin(self) -> None:
        """Do nothing: there is no other assignment."""

    def take(self, ready: frozenset[int]) -> None:
        """Do nothing: there is no other assignment."""

    def leave(self) -> None:
        """Do nothing: nobody else can take these partitions."""

    async def stop(self) -> None:
        """Do nothing: nobody else knows this one."""


def everything(partitions: int) -> StoredPlacement:
    """Return the placement of a process that owns all partitions."""
    return StoredPlacement(Assignment(frozenset(range(partitions))))
