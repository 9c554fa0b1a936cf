"""Periodic work on the log: trimming, compaction, and reading everything once to find damage."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from streams.disk import DiskFull
from streams.embedded.embedded_log import SLICE_BYTES, Declaration, EmbeddedLog
from streams.embedded.errors import LogDamaged, LogError
from streams.embedded.groups import FEW_RECORDS
from streams.embedded.log_store import MIB
from streams.log import Floor, Needed
from topics.catalog import TopicPartition
from topics.errors import Unavailable

log: Final = logging.getLogger(__name__)

#: A partition is compacted once this share of its records, and at least `DIRTY_RECORDS`, are new since the last time.
DIRTY_SHARE: Final = 0.5
DIRTY_RECORDS: Final = 50_000
ROUND_SECONDS: Final = 5.0
#: Seconds between removals of audio that nobody needs. Audio removed from the write buffer never reaches a second file.
TRIM_SECONDS: Final = 0.5
#: Fewer records wait for the next round, because reads examine each removal that is still in the write buffer.
TRIM_RECORDS: Final = 64
#: Fewer records between two needed ones stay until both may go, or until the next erasure.
HOLE_RECORDS: Final = FEW_RECORDS
#: Among more needed records, others stay: the audio of the needed ones takes more space than what is between it.
NEEDED_SEARCHED: Final = 10_000
#: Rounds of removals between those of records behind needed ones.
HOLE_ROUNDS: Final = 4
#: Rounds between reclaims of the disk space of trimmed records. Writes also free it, but later.
RECLAIM_ROUNDS: Final = 180
#: Bytes of a large log read per second after a start, at about 3 % of a CPU core.
READ_BYTES: Final = 8 * MIB


class Maintenance:
    """Maintains a log until cancelled. Loop only."""

    def __init__(
        self,
        log_: EmbeddedLog,
        floor: Floor = lambda tp: None,
        needed: Needed = lambda tp, start, stop, most: [],
    ) -> None:
        """Maintain the topics that this process has declared.

        Records below a partition's `floor` are removed at once, those between `needed` ones some seconds later, others
        when the retention of their topic, if any, ends.
        """
        self._log = log_
        self._floor = floor
        self._needed = needed
        #: By partition, the offset up to which holes were made, and the end of the log in the last round.
        self._holes: dict[TopicPartition, tuple[int, int]] = {}
        self._trimmed: set[TopicPartition] = set()
        #: Held during a round.
        self._working = asyncio.Lock()

    async def run(self) -> None:
        """Do a round every `ROUND_SECONDS`, and retry after failures.

        Raises:
            LogDamaged: damage was found.
            LogError: the log cannot be written any more.
        """
        rounds = 0
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            rounds += 1
            if isinstance(self._log.failure, LogDamaged):
                self._log.note_damage(self._log.failure)
            if self._log.damage is not None:
                raise self._log.damage
            if self._log.failure is not None:
                raise LogError(str(self._log.failure))
            try:
                async with self._working:
                    await self.round()
                if rounds % RECLAIM_ROUNDS == 0:
                    await self.reclaim()
            except DiskFull:
                pass  # Refused records report it.
            except LogDamaged as error:
                self._log.note_damage(error)
            except (LogError, Unavailable) as error:
                log.warning("maintenance of the log waits: %s", error)

    async def erase(self) -> None:
        """Remove all records that nobody needs, and rewrite the files that hold removed ones.

        Raises:
            LogError: the log is damaged or failed for good.
            Unavailable: the disk is full or fails.
        """
        try:
            async with self._working:
                await self.round(thorough=True)
                for tp, declaration in self._partitions():
                    if not declaration.compact:
                        await self._make_all_holes(tp)
                await self._log.flush()
                await self._log.erase()
        except LogDamaged as error:
            self._log.note_damage(error)
            raise

    async def trim(self) -> None:
        """Remove records below the floors every `TRIM_SECONDS`, until the log fails."""
        rounds = 0
        while True:
            await asyncio.sleep(TRIM_SECONDS)
            rounds += 1
            if self._log.failure is not None:
                return
            for tp, declaration in self._partitions():
                if not declaration.compact:
                    self._trim(tp, self._floor(tp) or 0, TRIM_RECORDS)
                    if rounds % HOLE_ROUNDS == 0:
                        self.make_holes(tp)

    async def read_rest(self) -> None:
        """Read slowly, once, what the start did not read, to find damage before a record is needed."""
        position = b"" if self._log.store.is_unread else None
        while position is not None:
            await asyncio.sleep(SLICE_BYTES / READ_BYTES)
            try:
                position = await asyncio.to_thread(self._log.read_on, position)
            except LogDamaged as error:
                self._log.note_damage(error)
                return
            except (LogError, Unavailable) as error:
                log.warning("reading of the log waits: %s", error)
                await asyncio.sleep(ROUND_SECONDS)
        self._log.store.is_unread = False

    async def round(self, *, thorough: bool = False) -> None:
        """Trim and compact partitions that need it; if `thorough`, compact all that have new records."""
        for tp, declaration in self._partitions():
            if not declaration.compact:
                self._trim(tp, max(self._floor(tp) or 0, self._expired(tp, declaration.retention_ms)))
            elif self._needs_compaction(tp, thorough):
                removed = await asyncio.to_thread(self._log.compact, tp)
                log.info("compacted %s/%d: %d records removed", *tp, removed)

    async def reclaim(self) -> None:
        trimmed, self._trimmed = self._trimmed, set()
        for tp in trimmed:
            await asyncio.to_thread(self._log.reclaim, tp)

    def _partitions(self) -> Iterator[tuple[TopicPartition, Declaration]]:
        for topic, declaration in list(self._log.declarations.items()):
            for number in range(declaration.partitions):
                yield TopicPartition(topic, number), declaration

    def _expired(self, tp: TopicPartition, retention_ms: int | None) -> int:
        return 0 if retention_ms is None else first_since(self._log, tp, int(self._log.clock() * 1000) - retention_ms)

    def _trim(self, tp: TopicPartition, before: int, least: int = 1) -> None:
        if before >= self._log.earliest(tp) + least:
            self._log.trim(tp, before)
            self._trimmed.add(tp)

    def make_holes(self, tp: TopicPartition) -> None:
        """Remove records between needed ones.

        Those that came since the last call stay: a live stream needs its newest audio for a moment only, and a hole
        that ends there would leave it behind.
        """
        start, stop = self._holes.get(tp, (0, 0))
        start = max(start, self._log.earliest(tp))
        for since, before in self._gaps(tp, start, stop, NEEDED_SEARCHED):
            start = since
            if before - since >= HOLE_RECORDS:
                self._make_hole(tp, since, before)
                start = before
        self._holes[tp] = start, self._log.end(tp)

    async def _make_all_holes(self, tp: TopicPartition) -> None:
        """Remove all records between needed ones: also few, and those that were needed in `make_holes`."""
        gaps = self._gaps(tp, self._log.earliest(tp), self._log.end(tp), None)
        for since, before in await asyncio.to_thread(lambda: [gap for gap in gaps if self._log.holds(tp, *gap)]):
            self._make_hole(tp, since, before)

    def _gaps(self, tp: TopicPartition, start: int, stop: int, most: int | None) -> list[tuple[int, int]]:
        """Return the ranges in [start, stop) between needed records; a range may be empty."""
        needed = self._needed(tp, start, stop, most) if start < stop else []
        return list(zip((start, *(offset + 1 for offset in needed)), needed, strict=False))

    def _make_hole(self, tp: TopicPartition, since: int, before: int) -> None:
        self._log.make_hole(tp, since, before)
        self._trimmed.add(tp)

    def _needs_compaction(self, tp: TopicPartition, thorough: bool) -> bool:
        dirty, kept = self._log.dirty(tp)
        return dirty >= (1 if thorough else max(DIRTY_RECORDS, DIRTY_SHARE * (dirty + kept)))


def first_since(log_: EmbeddedLog, tp: TopicPartition, timestamp: int) -> int:
    """Return the first offset with a record not older than `timestamp` (ms), or the end.

    Uses binary search. Where the clock went back, the boundary may be off by the jump. Not for compacted topics.
    """
    low, high = log_.earliest(tp), log_.end(tp)
    middle = low  # The usual answer.
    while low < high:
        # Read the next existing record: offsets are missing after a salvage.
        records = log_.read(tp, middle, 1, 1)
        if not records or records[0].timestamp >= timestamp:
            high = middle
        else:
            low = records[0].offset + 1
        middle = (low + high) // 2
    return low
