"""The life cycle shared by a node's sessions and jobs."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import mode
import structlog

from streams.folding.fold import Changes, Fold
from streams.folding.followers import Followers
from streams.folding.head_store import HeadStore
from streams.folding.sweeper import Sweeper
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.partition_consumer import DISK_SECONDS
from streams.node.sender import RecordSender
from topics import keys
from topics.errors import Unavailable

S = TypeVar("S", bound=HeadStore[Any])

log = structlog.get_logger(__name__)

#: Ids, or pages of their audio, that a takeover looks at before it yields to other tasks.
SURVEYED: Final = 64
#: Rows in such a page.
PAGE_ROWS: Final = 32
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

    def __init__(
        self, owners: Owners, sender: RecordSender, followers: Followers, lifetime_ms: int, patience_ms: int
    ) -> None:
        """`lifetime_ms` and `patience_ms` are passed to the sweeper."""
        super().__init__()
        self.owners = owners
        self.sender = sender
        self.followers = followers
        self._tidying: dict[str, None] = {}
        self._tidier: asyncio.Task[None] | None = None
        self._sweeper = Sweeper(self.all_serving, lifetime_ms, patience_ms, self.expire, self.give_up)

    @abstractmethod
    def store(self, owner: PartitionOwner) -> S: ...

    def serving(self, id: str) -> S:
        return self.store(self.owners.serving(id))

    def for_reading(self, id: str) -> S:
        return self.store(self.owners.for_reading(id))

    def all_for_reading(self) -> list[S]:
        return [self.store(owner) for owner in self.owners.all_for_reading()]

    def all_serving(self) -> list[S]:
        return [self.store(owner) for owner in self.owners.all_serving()]

    async def survey(self, owner: PartitionOwner) -> None:
        """Find pending work, and audio that must stay in the log. The cost grows with the unsettled ids only."""
        store = self.store(owner)
        if not store.indexed:
            await _in_turns(owner, store.build_index())
        await _in_turns(owner, self._take_stock(store, owner.early.setdefault(self.commands, Changes())))

    def _take_stock(self, store: S, early: Changes) -> Iterator[None]:
        """Look at one unsettled id, or one page of its audio, per step. Records may be folded between two steps."""
        for id in filter(store.readable, store.unsettled_ids()):
            head = store.head(id)
            if head is None or not head.unsettled or store.is_erased(head) or store.has_dropped_audio(id, head):
                early.leftovers[id] = None
            if head is not None and head.unsettled:
                if head.counted and (project := store.project(id)) is not None:
                    store.projects.add(id, project)
                self.note_pending(id, head, early)
                yield from self._hold_audio(store, id)
            yield

    def _hold_audio(self, store: S, id: str) -> Iterator[None]:
        """Hold the audio in the log that an id still needs, one page of its rows per step."""
        first = 0
        while (head := store.head(id)) is not None and first < (numbers := self.needed_audio(head)).stop:
            first = max(first, numbers.start)
            stop = min(first + PAGE_ROWS, numbers.stop)
            rows = store.audio(id, first, stop)
            for row in rows:
                store.references.add(row.offset)
            first += len(rows)
            if first < stop:
                return
            yield

    @abstractmethod
    def needed_audio(self, head: Any) -> range:
        """Return the numbers of the chunks or parts that must stay in the log."""

    @abstractmethod
    def note_pending(self, id: str, head: Any, early: Changes) -> None:
        """Add the pending work of an id to `early`."""

    async def begin(self, owner: PartitionOwner) -> int:
        """Begin the pending work of a partition that now serves; return the number of sessions or jobs with work.

        Until it returns, `announce` leaves all work to it.
        """
        early = owner.early.setdefault(self.commands, Changes())
        unfinished = list(early.work)
        for count, id in enumerate(unfinished, 1):
            self.suspect(id)
            if count % SURVEYED == 0:
                await asyncio.sleep(0)
        while len(early.work) > SURVEYED and owner.serving:
            some = dict.fromkeys(islice(early.work, SURVEYED))
            for id in some:
                del early.work[id]
            self._take(Changes(work=some))
            await asyncio.sleep(0)
        if owner.serving:
            self._take(owner.early.pop(self.commands))
        return len(unfinished)

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
        if owner.serving and self.commands not in owner.early:
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

    def suspect(self, id: str) -> None:
        """Note that work on an id may have killed a process. Sessions need no note: their workers die instead."""

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

    async def sweep(self) -> None:
        """Append the commands that end everything that is due."""
        await self._sweeper.sweep()

    @abstractmethod
    async def remove(self, id: str) -> None:
        """Delete a session or job, as its client would."""

    async def remove_rest(self, store: S, project: str) -> int:
        """Delete what a partition has of a deleted project besides sessions and jobs; return its number."""
        return 0

    @abstractmethod
    async def expire(self, id: str, due: int, seen: int) -> None:
        """Append the command that ends an id whose index entry has this due time (ms), unless one came after `seen`."""

    @abstractmethod
    async def give_up(self, id: str, due: int, seen: int) -> None:
        """End the work of an id that stands still."""


async def _in_turns(owner: PartitionOwner, steps: Iterable[object]) -> None:
    """Take some steps of a takeover in each turn of the loop."""
    for count, _ in enumerate(steps):
        if count % SURVEYED == 0:
            owner.steps += 1
            await asyncio.sleep(0)
