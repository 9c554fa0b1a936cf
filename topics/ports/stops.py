"""Partitions that stopped, because too many of their records cannot be read, and what an operator decided on each."""

from enum import StrEnum
from typing import Protocol

import msgspec


class Decision(StrEnum):
    """What to do with a partition that stopped."""

    SKIP = "skip"
    """Set aside all records that cannot be read, up to the present end of the topic."""
    RESUME = "resume"
    """Read the record again: it may be readable by now."""


class Stop(msgspec.Struct, frozen=True):
    """A partition that stopped, and the first record that it did not pass."""

    partition: int
    #: As the log calls it.
    topic: str
    offset: int
    cause: str
    #: Milliseconds since 1970, UTC.
    at: int
    decision: Decision | None = None


class Stops(Protocol):
    """Notes of stopped partitions, shared by all nodes and the operator's command.

    Every call may raise DirectoryDown.
    """

    async def note(self, stop: Stop) -> Decision | None:
        """Note a stop, and return what the operator decided on it; a decision to resume is returned once."""

    async def clear(self, partition: int) -> None:
        """Note that a partition serves again."""
