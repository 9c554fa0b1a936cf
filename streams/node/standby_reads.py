"""Reads while an owner is away, from a table of this node that has all of the changelog."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from streams.jobs.job_store import JobStore
from streams.node.backend import LogBackend
from streams.node.owners import Owners
from streams.node.ports import JobsPort, SessionsPort
from streams.node.standbys import Standbys
from streams.sessions.store import SessionStore
from streams.tables.partition_rows import PartitionRows
from topics.catalog import CHANGELOG, FOLDED, TopicPartition
from topics.errors import Damaged, NotOwned, RecordError, Unavailable
from topics.ports.jobs import JobView
from topics.ports.sessions import SessionView, Windows

#: Longest wait, in seconds, until the table has what the changelog has, and between two looks.
REACH_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.02

S = TypeVar("S", SessionStore, JobStore)
Bounds = Mapping[TopicPartition, tuple[int, int]]


class StandbyReads:
    """Finds tables to read while their owners are away: those of stand-bys, and those that are taken over here.

    Loop only.
    """

    def __init__(self, owners: Owners, standbys: Standbys, backend: LogBackend) -> None:
        self._owners = owners
        self._standbys = standbys
        self._backend = backend
        #: The partitions of the next question for the log's bounds, which is not asked yet.
        self._asked: set[int] = set()
        self._next: asyncio.Task[Bounds | Unavailable] | None = None
        self._asking = asyncio.Lock()

    def rows(self, id: str) -> PartitionRows:
        """Return the table that may have an id.

        Raises:
            Unavailable: there is none here, or its owner is.
        """
        number = self._owners.number(id)
        owner = self._owners.here.get(number)
        if owner is not None and not owner.is_coming:
            raise NotOwned(f"partition {number} has its owner here")
        rows = owner.rows if owner is not None and owner.has_table else self._standbys.get(number)
        if rows is None:
            raise NotOwned(f"this node does not stand by for partition {number}")
        if rows.applied.folding and rows.before is None:
            raise Unavailable(f"partition {number} is being folded")
        return rows

    def session_store(self, session: str) -> SessionStore:
        return _uncached(SessionStore(self._table(session)))

    def job_store(self, job: str) -> JobStore:
        return _uncached(JobStore(self._table(job)))

    def _table(self, id: str) -> Any:
        rows = self.rows(id)
        return rows.before or rows

    def urls(self, id: str) -> Sequence[str]:
        return self._owners.standbys_elsewhere.get(self._owners.number(id), ())

    async def as_of(self, id: str) -> int:
        """Return a log time (ms) up to which everything about an id is known here, once its table can be read.

        It must have all records that the changelog has at the time of the call. If this node takes the partition over,
        those count that come before its epoch, and those after it must be its own: a later owner may have served.

        Raises:
            Unavailable: there is no such table.
        """
        number, asked_ms = self._owners.number(id), self._backend.log_ms()
        before = self.rows(id).applied.offset
        try:
            async with asyncio.timeout(REACH_SECONDS):
                bounds = await self._bounds(number)
                end = bounds[tp := TopicPartition(CHANGELOG, number)][1]
                while not self._has((rows := self.rows(id)), tp, end):  # noqa: ASYNC110 (another thread writes it)
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise Unavailable(f"the stand-by of partition {number} is behind its changelog") from None
        if before > end or rows.applied.log not in (b"", self._backend.name) or self._backend.fault(number) is not None:
            raise Unavailable(f"the table of partition {number} is of another log")
        try:
            folded = rows.folded()
        except RecordError as error:
            raise Damaged from error
        if all(bounds[TopicPartition(topic, number)][1] <= folded.positions.get(topic, 0) for topic in FOLDED):
            return asked_ms
        if not folded.at:
            raise Unavailable(f"the owner of partition {number} has not noted yet how far it has folded its topics")
        return folded.at

    def _has(self, rows: PartitionRows, tp: TopicPartition, end: int) -> bool:
        if rows.before is None:
            return rows.applied.offset >= end
        return self._backend.note_end(tp, end) and not self._owners.here[tp.partition].unread_gaps

    async def _bounds(self, number: int) -> Bounds:
        """Return the bounds of a partition's topics, which the log is asked for after this call.

        There is one question at a time, and the next is for all who came meanwhile.
        """
        self._asked.add(number)
        if self._next is None:
            self._next = asyncio.create_task(self._ask(), name="bounds for reads")
        bounds = await asyncio.shield(self._next)
        if isinstance(bounds, Unavailable):
            raise bounds
        return bounds

    async def _ask(self) -> Bounds | Unavailable:
        async with self._asking:
            asked, self._asked, self._next = self._asked, set(), None
            tps = [TopicPartition(topic, number) for number in sorted(asked) for topic in (CHANGELOG, *FOLDED)]
            try:
                return await self._backend.bounds(tps)
            except Unavailable as error:
                return error  # Nobody may be left to take it.


def _uncached(store: S) -> S:
    store.heads_most = 0  # Another thread may write the table.
    return store


class StandbySessions(SessionsPort):
    """Implements `topics.ports.sessions.Sessions` for reads while an owner is away. Loop only."""

    def __init__(self, reads: StandbyReads, *arguments: Any) -> None:
        """`arguments` are those of `SessionsPort`."""
        super().__init__(*arguments)
        self._reads = reads

    def _readable(self, session: str) -> SessionStore:
        return self._reads.session_store(session)

    def view(self, session: str) -> SessionView | None:
        with self._reads.rows(session).still():
            view = super().view(session)
        return None if view is None else msgspec.structs.replace(view, standby=True)

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        with self._reads.rows(session).still():
            return super().windows(session, first, count)


class StandbyJobs(JobsPort):
    """Implements `topics.ports.jobs.Jobs` for reads while an owner is away. Loop only."""

    def __init__(self, reads: StandbyReads, *arguments: Any) -> None:
        """`arguments` are those of `JobsPort`."""
        super().__init__(*arguments)
        self._reads = reads

    def _readable(self, job: str) -> JobStore:
        return self._reads.job_store(job)

    def view(self, job: str) -> JobView | None:
        with self._reads.rows(job).still():
            view = super().view(job)
        return None if view is None else msgspec.structs.replace(view, standby=True)


class NodeStandby(NamedTuple):
    """Implements `topics.ports.standby.Standby`."""

    reads: StandbyReads
    sessions: StandbySessions
    jobs: StandbyJobs

    async def as_of(self, id: str) -> int:
        return await self.reads.as_of(id)

    def urls(self, id: str) -> Sequence[str]:
        return self.reads.urls(id)
