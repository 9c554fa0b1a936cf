"""Open tables of partitions that a node does not own: standbys, kept up to date by the changelog, and a few others."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from streams.disk import DiskFull
from streams.log import StoredRecord
from streams.node.backend import ChangelogFollower
from streams.tables.partition_rows import PartitionRows, TableUnfit
from streams.tables.tables import Tables
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import Unavailable

log = structlog.get_logger(__name__)

#: Seconds between retries of tables that failed or could not be opened.
TEND_SECONDS: Final = 2.0


class _Standby:
    """Holds an open table, and why no more records can be applied to it.

    Loop only, except `fault`, which the follower's thread reads and sets.
    """

    def __init__(self, rows: PartitionRows, fault: Exception | None = None) -> None:
        self.rows = rows
        self.fault = fault


class Standbys:
    """Keeps tables of partitions that the node does not own. Loop only, except `_apply`.

    Tables are opened, mended and closed in threads, one operation at a time for each partition. The follower's thread
    applies records. It skips a table that has failed or is too old until the table is mended.
    """

    def __init__(self, tables: Tables, follower: ChangelogFollower | None) -> None:
        self._tables = tables
        self._follower = follower
        self._open: dict[int, _Standby] = {}
        self._followed: Mapping[int, _Standby] = {}
        #: The partitions to follow; below, those that this node owns, or owned last.
        self._wanted: Set[int] = frozenset()
        self._owned: Set[int] = frozenset()
        #: The partitions of this node are known.
        self.assigned = False
        self._wake = asyncio.Event()
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __iter__(self) -> Iterator[PartitionRows]:
        return iter([standby.rows for standby in self._open.values()])

    def get(self, number: int) -> PartitionRows | None:
        """Return the open table of a partition, None if there is none or it takes no records."""
        standby = self._open.get(number)
        return None if standby is None or standby.fault is not None else standby.rows

    def places(self) -> dict[int, tuple[int, str | None]]:
        """Return how far each partition to follow is applied, by number, and why it is not followed now."""
        there: dict[int, tuple[int, str | None]] = dict.fromkeys(self._wanted, (0, "its table is not open"))
        for number in self._wanted & self._open.keys():
            standby = self._open[number]
            fault = None if standby.fault is None else str(standby.fault) or repr(standby.fault)
            there[number] = standby.rows.applied.offset, fault
        return there

    def behind(self) -> Set[int]:
        """Return the partitions to follow whose tables are not yet what a takeover needs."""
        behind = {tp.partition for tp in ([] if self._follower is None else self._follower.behind())}
        return behind | {number for number, (_, fault) in self.places().items() if fault is not None}

    async def promote(self, number: int) -> PartitionRows:
        """Hand over the table of a partition that this node now owns; raise DatabaseFailed if it cannot be opened."""
        # A thread cannot be cancelled: if this call is, the next call finds the table that the thread opens.
        await asyncio.shield(self._prepare(number))
        rows = self._open.pop(number).rows
        self._follow()
        return rows

    def demote(self, rows: PartitionRows, fault: Exception | None = None) -> None:
        """Take back the table of a lost partition, with its fault to mend if any; `assign` decides if it stays open."""
        rows.epoch = 0
        rows.thaw()
        self._open[rows.number] = _Standby(rows, fault or rows.damage)

    def assign(self, numbers: Set[int], owned: Set[int]) -> None:
        """Follow the partitions `numbers`, and close the tables of all others that are not owned."""
        self._wanted, self._owned, self.assigned = numbers, owned, True
        self._follow()
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            await self._tend()
            with suppress(TimeoutError):
                async with asyncio.timeout(TEND_SECONDS):
                    await self._wake.wait()

    async def _tend(self) -> None:
        for number in sorted({*self._open, *self._wanted}):
            work = self._prepare(number) if number in self._wanted else self._close_unneeded(number)
            try:
                await asyncio.shield(work)
            except Unavailable as error:
                log.warning("standby.none", partition=number, error=str(error))
        self._follow()

    async def _prepare(self, number: int) -> None:
        async with self._turns[number]:
            standby = self._open.get(number)
            if standby is None:
                rows = await asyncio.to_thread(self._tables.open, number)
            elif standby.fault is None:
                return
            elif isinstance(standby.fault, DiskFull):
                if standby.rows.disk_full is not None:
                    return
                rows = standby.rows
            else:
                del self._open[number]
                rows = await asyncio.to_thread(self._tables.mend, standby.rows, standby.fault)
            self._open[number] = _Standby(rows)

    async def _close_unneeded(self, number: int) -> None:
        async with self._turns[number]:
            if number in self._open and number not in self._wanted and number not in self._owned:
                standby = self._open.pop(number)
                # The follower's thread may be applying records to it.
                standby.fault = standby.fault or Unavailable("it is closed")
                await asyncio.to_thread(standby.rows.close)

    async def drop_unused(self) -> None:
        """Delete tables that this node has not needed for long: nothing would erase deleted rows from them."""
        for number in await asyncio.to_thread(self._tables.unused):
            async with self._turns[number]:
                if self.assigned and number not in self._open.keys() | self._wanted | self._owned:
                    await asyncio.to_thread(self._tables.drop, number)

    async def stop(self) -> None:
        self.assign(frozenset(), frozenset())
        for number in list(self._turns.keys() | self._open.keys()):
            with suppress(Unavailable):
                await self._close_unneeded(number)

    # --- following --------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        followed = {
            number: standby
            for number, standby in self._open.items()
            if number in self._wanted and standby.fault is None
        }
        if self._follower is not None and followed != self._followed:
            self._followed = followed
            starts = {TopicPartition(CHANGELOG, number): one.rows.applied.offset for number, one in followed.items()}
            self._follower.follow(starts, partial(self._apply, followed, dict(starts)))

    @staticmethod
    def _apply(
        standbys: Mapping[int, _Standby],
        following: dict[TopicPartition, int],
        tp: TopicPartition,
        records: Sequence[StoredRecord],
    ) -> None:
        """Apply records at or above `following`, in the follower's thread.

        An owner may have the table by now: the table skips records that it has or that its owner wrote.
        """
        standby = standbys[tp.partition]
        if standby.fault is not None:
            return
        try:
            if records[0].offset < following[tp]:
                raise TableUnfit("its changelog begins again: it is of another log")
            standby.rows.apply(records)
            following[tp] = records[-1].offset + 1
        except Exception as error:
            if standby.fault is None:
                log.warning("standby.behind", partition=tp.partition, error=repr(error))
                standby.fault = error
