"""Periodic work on the log: trimming, compaction, and reading everything once to find damage."""

import asyncio
import logging
from typing import Final

from streams.disk import DiskFull
from streams.embedded.embedded_log import SLICE_BYTES, EmbeddedLog
from streams.embedded.errors import LogDamaged, LogError
from streams.embedded.log_store import MIB
from streams.log import Floor
from topics.catalog import TopicPartition
from topics.errors import Unavailable

log: Final = logging.getLogger(__name__)

#: A partition is compacted once this share of its records, and at least `DIRTY_RECORDS`, are new since the last time.
DIRTY_SHARE: Final = 0.5
DIRTY_RECORDS: Final = 50_000
#: Seconds between rounds: audio trimmed before the write buffer is full never reaches a second file.
ROUND_SECONDS: Final = 5.0
#: Rounds after which each partition is compacted even if little of it is new, so that deleted rows leave the log.
THOROUGH_ROUNDS: Final = 6 * 720
#: Rounds between reclaims of the disk space of trimmed records. Writes also free it, but later.
RECLAIM_ROUNDS: Final = 180
#: Bytes of a large log read per second after a start, at about 3 % of a CPU core.
READ_BYTES: Final = 8 * MIB


class Maintenance:
    """Maintains a log until cancelled. Loop only."""

    def __init__(self, log_: EmbeddedLog, floor: Floor = lambda tp: None) -> None:
        """Maintain the topics that this process has declared.

        Records below a partition's `floor` are removed at once, others when the retention of their topic, if any, ends.
        """
        self._log = log_
        self._floor = floor
        self._trimmed: set[TopicPartition] = set()

    async def run(self) -> None:
        """Do a round every `ROUND_SECONDS`, and retry after failures. Raise LogDamaged if damage was found."""
        rounds = 0
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            rounds += 1
            if self._log.damage is not None:
                raise self._log.damage
            try:
                await self.round(thorough=rounds % THOROUGH_ROUNDS == 0)
                if rounds % RECLAIM_ROUNDS == 0:
                    await self.reclaim()
            except DiskFull:
                pass  # Refused records report it.
            except LogDamaged as error:
                self._log.note_damage(error)
            except (LogError, Unavailable) as error:
                log.warning("maintenance of the log waits: %s", error)

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
        for topic, declaration in list(self._log.declarations.items()):
            for number in range(declaration.partitions):
                tp = TopicPartition(topic, number)
                if not declaration.compact:
                    self._trim(tp, declaration.retention_ms)
                elif self._needs_compaction(tp, thorough):
                    removed = await asyncio.to_thread(self._log.compact, tp)
                    log.info("compacted %s/%d: %d records removed", topic, number, removed)

    async def reclaim(self) -> None:
        trimmed, self._trimmed = self._trimmed, set()
        for tp in trimmed:
            await asyncio.to_thread(self._log.reclaim, tp)

    def _trim(self, tp: TopicPartition, retention_ms: int | None) -> None:
        before = self._floor(tp) or 0
        if retention_ms is not None:
            before = max(before, first_since(self._log, tp, int(self._log.clock() * 1000) - retention_ms))
        if before > self._log.earliest(tp):
            self._log.trim(tp, before)
            self._trimmed.add(tp)

    def _needs_compaction(self, tp: TopicPartition, thorough: bool) -> bool:
        dirty, kept = self._log.dirty(tp)
        return dirty >= (1 if thorough else max(DIRTY_RECORDS, DIRTY_SHARE * (dirty + kept)))


def first_since(log_: EmbeddedLog, tp: TopicPartition, timestamp: int) -> int:
    """Return the first offset with a record not older than `timestamp` (ms), or the end.

    Uses binary search, since timestamps never decrease within a partition. Not for compacted topics.
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
