"""What nodes have seen of their log on Kafka, kept beside it: a log that was lost or made again is told from it."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class SeenTopic(msgspec.Struct, frozen=True):
    """A topic on the brokers: its id and number of partitions.

    For each partition that is used, it has the lowest first offset and the highest end offset.
    """

    id: str
    partitions: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]


class SeenLog(msgspec.Struct, frozen=True):
    """The log of a deployment: its number of partitions, its topics by name, and why partitions are not whole."""

    partitions: int
    topics: dict[str, SeenTopic] = {}
    lost: dict[int, str] = {}


class LogMemory(Protocol):
    """Keeps what was seen, for all nodes; each call raises DirectoryDown or Unavailable."""

    async def seen(self) -> SeenLog | None:
        """Return what was seen, None before the first start."""

    async def update(self, change: Callable[[SeenLog | None], SeenLog]) -> SeenLog:
        """Replace what was seen by the result of `change`, while no other node does; return it."""
