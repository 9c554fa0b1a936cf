"""A node's partitions on an in-memory log; tests decide its group membership, and its work is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from streams.folding import retry
from streams.folding.followers import Followers
from streams.node import partitions as module
from streams.node import standbys
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.partitions import Partitions
from streams.node.tasks import Tasks
from streams.ownership import Assignment
from streams.tables.database import Databases
from tests.unit.streams.node.logs import MemoryLog, Notes
from tests.waiting import until
from topics.catalog import FOLDED

PARTITIONS = 4


class Member:
    is_away = False

    def __init__(self) -> None:
        self.is_valid = True
        self.rejoins = self.removals = 0
        #: Set once it has asked for no partitions.
        self.leaves = asyncio.Event()
        #: What it has asked for, because the tables are ready.
        self.ready: list[frozenset[int]] = []

    async def start(self, assigned: object, lost: object, failed: object) -> None:
        pass

    def valid(self) -> bool:
        return self.is_valid

    may_read = valid

    def waiting(self) -> str | None:
        return None

    def give_up(self, reason: str) -> None:
        raise AssertionError(reason)

    def rejoin(self) -> None:
        self.rejoins += 1

    def take(self, ready: frozenset[int]) -> None:
        self.ready.append(ready)

    def leave(self) -> None:
        self.leaves.set()

    async def stop(self) -> None:
        pass


class Work:
    """The part of `Workload` that `Partitions` uses."""

    def __init__(self) -> None:
        self.folded: list[tuple[str, int]] = []
        self.folds = {topic: Notes(topic, self.folded) for topic in sorted(FOLDED)}
        self.surveyed: list[int] = []
        self.begun: list[int] = []
        self.lost: list[int] = []

    async def survey(self, owner: PartitionOwner) -> None:
        self.surveyed.append(owner.number)

    async def begin(self, owner: PartitionOwner) -> int:
        self.begun.append(owner.number)
        return 1

    def lose(self, numbers: Collection[int]) -> None:
        self.lost += numbers


class Shareholder:
    """A node that shares the partitions of a log with others."""

    def __init__(self, log: MemoryLog, directory: Path) -> None:
        self.log, self.member, self.work = log, Member(), Work()
        self.failures = 0
        self.tasks = Tasks(self._failed)
        self.owners = Owners(PARTITIONS, self.member.valid, self.member.may_read)
        self.directory, self.databases = directory, Databases(directory)
        backend: Any = log
        works: Any = [self.work]
        self.partitions = Partitions(self.owners, backend, self.databases, works, Followers(), self.tasks, self.member)

    def _failed(self) -> None:
        self.failures += 1

    def assign(
        self,
        *owned: int,
        standbys: Collection[int] = (),
        urls: Mapping[int, str] = MappingProxyType({}),
        coming: Collection[int] = (),
    ) -> None:
        others = frozenset(urls.values())
        self.partitions.assign(
            Assignment(frozenset(owned), frozenset(standbys), urls, coming=frozenset(coming), others=others)
        )

    async def serve(self, *owned: int) -> None:
        self.assign(*owned)
        await until(lambda: self.serving() == list(owned))

    def serving(self) -> list[int]:
        return sorted(owner.number for owner in self.owners.all_serving())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Shareholder]:
        """Run the node during the body."""
        with (
            mock.patch.object(module, "NOTE_SECONDS", 0.005),
            mock.patch.object(retry, "FIRST_SECONDS", 0.005),
            mock.patch.object(standbys, "TEND_SECONDS", 0.005),
        ):
            await self.partitions.start()
            try:
                yield self
            finally:
                await self.tasks.stop()
                await self.partitions.stop()
