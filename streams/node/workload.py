"""The life cycle shared by a node's sessions and jobs."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import mode
import structlog

from streams.disk import DiskFull
from streams.folding.fold import Changes, Fold
from streams.folding.followers import Followers
from streams.folding.head_store import HeadStore
from streams.folding.sweeper import sweep
from streams.node.lane import DISK_SECONDS
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.sender import RecordSender
from topics import keys
from topics.errors import Unavailable

S = TypeVar("S", bound=HeadStore[Any])

log = structlog.get_logger(__name__)

#: Ids that a survey checks before it yields to other tasks.
SURVEYED: Final = 64
#: Seconds between deletions of one id's rows, so that they fill neither the loop nor the log's queue.
TIDY_SECONDS: Final = 0.05


class Workload(mode.Service, ABC, Generic[S]):  # type: ignore[misc]
    """Base of the node's work for sessions and for jobs.

    Loop only. The node starts and stops it as a service. It calls `survey` and then `begin` for each partition taken
    over, and `lose` for lost ones. The folds call `announce` after each batch.
    """

    abstract = True
    mundane_level = "debug"

    commands: str
    folds: dict[str, Fold[Any]]

    def __init__(self, owners: Owners, sender: RecordSender, followers: Followers) -> None:
        super().__init__()
        self.owners = owners
        self.sender = sender
        self.followers = followers
        self._tidying: dict[str, None] = {}
        self._tidier: asyncio.Task[None] | None = None

    @abstractmethod
    def store(self, owner: PartitionOwner) -> S: ...

    def serving(self, id: str) -> S:
        return self.store(self.owners.serving(id))

    def all_serving(self) -> list[S]:
        return [self.store(owner) for owner in self.owners.all_serving()]

    async def survey(self, owner: PartitionOwner) -> None:
        """Find pending work, and audio that must stay in the log. The cost grows with the unsettled ids only."""
        store = self.store(owner)
        if not store.indexed:
            await self._index(store)
        with suppress(DiskFull):  # The next owner indexes the table again then.
            store.claim_lists()
        early = owner.early.setdefault(self.commands, Changes())
        for count, id in enumerate(filter(store.readable, list(store.unsettled_ids()))):
            head = store.head(id)
            if head is None or not head.unsettled or store.is_erased(head):
                early.leftovers[id] = None
            if head is not None and head.unsettled:
                if head.counted and (project := store.project(id)) is not None:
                    store.projects.add(id, project)
                self.take_stock(store, id, head, early)
            if count % SURVEYED == 0:
                await asyncio.sleep(0)

    async def _index(self, store: S) -> None:
        for count, _ in enumerate(store.build_index()):
            if count % SURVEYED == 0:
                await asyncio.sleep(0)

    @abstractmethod
    def take_stock(self, store: S, id: str, head: Any, early: Changes) -> None:
        """Add references to the audio that an id still needs, and its pending work to `early`."""

    def begin(self, owner: PartitionOwner) -> int:
        """Begin the pending work of a partition that now serves; return the number of sessions or jobs with work."""
        early = owner.early.get(self.commands, Changes())
        self.suspect(early.work)
        self._take(early)
        owner.early.pop(self.commands, None)
        return len(early.work)

    def announce(self, changes: Changes) -> None:
        """Cancel work on ids that a batch removed, wake readers, and take new work or keep it for `begin`."""
        for id in changes.gone:
            self.cancel(id)
        self.followers.notify(changes.changed)
        # All ids of a batch are in one partition.
        owner = self.owners.here.get(self.owners.number(next(iter(changes.changed))))
        if owner is None:
            return
        store = self.store(owner)
        for ids in (changes.work, changes.unbilled, changes.leftovers):
            for id in [id for id in ids if not store.readable(id)]:
                del ids[id]
        if owner.serving:
            self._take(changes)
        else:
            early = owner.early.setdefault(self.commands, Changes())
            early.work.update(changes.work)
            early.unbilled.update(changes.unbilled)
            early.leftovers.update(changes.leftovers)

    def _take(self, changes: Changes) -> None:
        self.take_work(changes)
        if changes.leftovers:
            self._tidying.update(changes.leftovers)
            if self._tidier is None or self._tidier.done():
                self._tidier = self.add_future(self._tidy())

    async def _tidy(self) -> None:
        """Delete rows that ids no longer need, some at a time."""
        release = self.folds[self.commands].release
        while self._tidying:
            for id in list(self._tidying):
                owner, pause = self.owners.here.get(self.owners.number(id)), 0.0
                try:
                    if owner is None or not owner.serving or self.store(owner).purge(id, release):
                        del self._tidying[id]
                    else:
                        pause = TIDY_SECONDS
                except Unavailable as error:  # Retried after all others.
                    log.warning("tidier.later", id=keys.shown(id), error=str(error))
                    pause = DISK_SECONDS
                await asyncio.sleep(pause)

    def suspect(self, ids: Iterable[str]) -> None:
        """Note that work on these ids may have killed a process. Sessions need no note: their workers die instead."""

    @abstractmethod
    def take_work(self, changes: Changes) -> None: ...

    @abstractmethod
    def cancel(self, id: str) -> None:
        """Cancel the work on a session or job that was removed, or whose partition was lost."""

    @abstractmethod
    def busy(self) -> Iterable[str]:
        """Return the sessions or jobs with state in memory besides their rows."""

    def lose(self, numbers: Collection[int]) -> None:
        """Cancel the work of lost partitions; the next owners find it in the rows."""
        lost = set(numbers)
        for id in [id for id in self.busy() if self.owners.number(id) in lost]:
            self.cancel(id)

    async def sweep(self, now_ms: int) -> None:
        """Append the commands that end everything due at `now_ms`, in log time."""
        await sweep(self.all_serving, now_ms, self.expire)

    @abstractmethod
    async def expire(self, id: str, due: int) -> None:
        """Append the command that ends an id whose index entry has this due time (ms)."""
