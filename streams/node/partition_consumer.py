"""One topic of an owned partition, which folds each record once, in log order."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

import structlog

from streams.disk import DatabaseDamaged, DiskFull
from streams.folding import retry
from streams.folding.batch import Park, fold_batch, fold_patiently
from streams.folding.fold import Fold
from streams.folding.head_store import HeadStore
from streams.log import Log, StoredRecord
from topics.catalog import TopicPartition
from topics.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)

#: A partition stops when a topic has this many unreadable records, and they are this share of all.
PARKED_AT_LEAST: Final = 20
PARKED_SHARE: Final = 0.05
#: Records that `catch_up` folds before it yields to other tasks: as many as a group of the embedded log has.
FOLDED: Final = 512
#: Seconds between retries of a table on a full disk.
DISK_SECONDS: Final = 0.25
#: Consecutive failures of a table after which the node stops: about a minute, with the pauses.
TABLE_ATTEMPTS: Final = 16


class PartitionStopped(ServiceError):
    """Too many records of a topic cannot be read: they are damaged, or from a newer version."""

    def __init__(self, message: str, topic: str, offset: int) -> None:
        super().__init__(message)
        #: The first record that the partition did not pass; the topic is the catalogue's.
        self.topic = topic
        self.offset = offset


class PartitionConsumer:
    """Folds the records of this process as they become durable, and fetches those that others appended in between.

    Loop only. Keeps the log's order: if a delivery leaves a gap after the folded records, it is fetched from the log
    instead, together with the gap.
    """

    def __init__(
        self, tp: TopicPartition, position: int, store: HeadStore[Any], fold: Fold[Any], source: Log, park: Park
    ) -> None:
        self.tp = tp
        #: All records below are folded.
        self.position = position
        #: All records below are on the log, as far as is known here.
        self.end = position
        #: Whether deliveries are folded at once; if not, `catch_up` reads them from the log.
        self.level = False
        self.closed = False
        #: Records folded, and unreadable ones. Those below `skips_below` do not count: an operator skipped them.
        self.folded = self.parked = 0
        self.skips_below = 0
        #: The record at which an earlier owner stopped; if it still cannot be read, so does this one.
        self.stops_at: int | None = None
        #: The position at which this consumer was last found behind the end of the log.
        self._behind: int | None = None
        self._store = store
        self._topic_fold = fold
        self._source = source
        self._park = park

    @property
    def topic(self) -> str:
        return self._source.topic_name(self.tp.topic)

    def deliver(self, records: Sequence[StoredRecord]) -> bool:
        """Accept durable records; return False if they need `catch_up`, because of missing ones or a failure."""
        self.end = max(self.end, records[-1].offset + 1)
        if not self.level:
            return True
        if records[0].offset == self.position:
            try:
                folded = fold_batch(self._store, records, self._topic_fold)
            except Unavailable:
                folded = 0
            self._advance(records[:folded])
            if folded == len(records):
                return True
        self.level = False
        return False

    def fall_behind(self, end: int) -> None:
        """Note that records up to `end` will not be delivered: `catch_up` is due."""
        self.level, self.end = False, max(self.end, end)

    def seen_behind(self, end: int) -> bool:
        """Return whether the consumer is behind `end` and has not moved since the last call."""
        behind = self.position if self.position < end else None
        stuck = behind is not None and behind == self._behind
        self._behind = behind
        return stuck

    async def catch_up(self) -> None:
        """Fold all records below `end` from the log and become level; return early if the consumer is closed.

        Raises:
            PartitionStopped: too many records cannot be read.
            DatabaseDamaged: the table must be rebuilt.
            Unavailable: the table failed `TABLE_ATTEMPTS` times in a row.
        """
        away = failed = 0
        while self.position < (end := self.end):
            is_folding = False
            try:
                async with aclosing(self._source.read(self.tp, self.position, end)) as reading:
                    async for records in reading:
                        is_folding = True
                        await self._fold(records)
                        away, failed, is_folding = 0, 0, False
                        if self.closed:
                            return
                # Retention removed any missing records.
                self.position = max(self.position, end)
            except DiskFull:
                await asyncio.sleep(DISK_SECONDS)  # DiskWatch reports it and waits for room.
                if self.closed:
                    return
            except DatabaseDamaged:
                raise
            except Unavailable as error:
                failed, away = (failed + 1, 0) if is_folding else (failed, away + 1)
                if failed == TABLE_ATTEMPTS:
                    raise
                event = "table.failed" if is_folding else "log.away"
                log.warning(event, topic=self.topic, partition=self.tp.partition, error=str(error))
                await asyncio.sleep(retry.pause(failed if is_folding else away))
                if self.closed:
                    return
        self.level = True

    async def _fold(self, records: Sequence[StoredRecord]) -> None:
        while records and not self.closed:
            some = records[:FOLDED]
            folded = fold_batch(self._store, some, self._topic_fold)
            self._advance(some[:folded])
            if not folded:
                await fold_patiently(self._store, some[0], self._topic_fold, self._set_aside)
                self._advance(some[:1])
            records = records[max(folded, 1) :]
            await asyncio.sleep(0)

    def _advance(self, records: Sequence[StoredRecord]) -> None:
        if records:
            self.position = records[-1].offset + 1
            self.folded += len(records)

    async def _set_aside(self, partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        if self.closed:
            return
        if counts and record.offset >= self.skips_below:
            self.parked += 1
            too_many = self.parked >= PARKED_AT_LEAST and self.parked >= PARKED_SHARE * (self.folded + 1)
            if too_many or record.offset == self.stops_at:
                raise PartitionStopped(
                    f"{self.parked} of {self.folded + 1} records of {self.topic}/{partition} cannot be read, the last "
                    f"one at offset {record.offset}: {cause}",
                    self.tp.topic,
                    record.offset,
                )
        await self._park(partition, record, cause, counts)
