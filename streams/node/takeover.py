"""Takeover of partitions: restore tables from the changelog, claim an epoch, fold the rest of the log."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from streams.folding.fold import Fold
from streams.log import StoredRecord
from streams.node.backend import LogBackend
from streams.node.owner import PartitionOwner
from streams.node.partition_consumer import PartitionConsumer, PartitionStopped
from streams.node.set_aside import SetAside
from streams.tables.partition_rows import PartitionRows
from topics import keys, record_codec
from topics.catalog import CHANGELOG, FOLD_ORDER, PARKED, TopicPartition
from topics.errors import Unavailable
from topics.keys import EPOCH
from topics.records import Parked

log = structlog.get_logger(__name__)

#: Changelogs read at once to restore tables.
RESTORES: Final = 4


class Takeover:
    """Prepares the owners of partitions to serve. Loop only."""

    def __init__(
        self,
        backend: LogBackend,
        folds: Mapping[str, Fold[Any]],
        shared: bool,
        note_missing: Callable[[int], None] = lambda number: None,
    ) -> None:
        """Prepare to take over; `shared` if other nodes may own the partitions before and after this one.

        `note_missing` is called with a partition whose table was missing although only this node has owned it.
        """
        #: Records moved to dead-letter topics, by their topic.
        self.parked = Counter(dict.fromkeys(PARKED.values(), 0))
        #: Partitions, each with a topic, of which an operator skips what cannot be read.
        self.skipped: set[tuple[int, str]] = set()
        self._backend = backend
        self._folds = folds
        self._shared = shared
        self._note_missing = note_missing
        self._restoring = asyncio.Semaphore(RESTORES)

    async def run(self, owner: PartitionOwner, survey: Callable[[PartitionOwner], Any]) -> None:
        """Prepare an owner with a table, up to but without `serve`. After a failure, call again to continue.

        Raises:
            Unavailable: the log does not answer, or the table fails.
            DatabaseDamaged: the table is damaged, or does not match its changelog.
            TableOutdated: the table may lack deletions.
            PartitionStopped: too many records of a topic cannot be read, or its log is not the one of before.
        """
        if not owner.restored:
            owner.waiting, owner.queued = "its turn to read its changelog", True
            async with self._restoring:
                owner.queued = False
                await self._restore(owner)
            if self._shared:
                await self._claim(owner)
            else:
                owner.rows.write_stale()
            owner.aside = SetAside(owner.rows)
            owner.restored = True
        if not owner.consumers:
            await self._make_consumers(owner)
        async with owner.catching_up:  # If it served for a moment, a consumer may be fetching a gap.
            for topics in FOLD_ORDER:
                for consumer in (owner.consumers[topic] for topic in topics):
                    owner.waiting = f"records {consumer.position} to {consumer.end} of {consumer.topic}"
                    await consumer.catch_up()
        owner.waiting = "a look through its rows"
        await survey(owner)

    # --- the table --------------------------------------------------------------------------------------------------

    async def _restore(self, owner: PartitionOwner) -> None:
        rows, tp = owner.rows, TopicPartition(CHANGELOG, owner.number)
        owner.waiting = "its changelog"
        if not self._shared:
            # Rows of the previous owner may still be queued. On a shared log, the epoch's marker follows them.
            await self._backend.writer.flush()
        asked = self._backend.now_ms()
        begin, end = (await self._backend.bounds([tp]))[tp]
        self._check_log(owner.number)
        rows.check(begin, end, self._backend.name)

        def apply(_: TopicPartition, records: Sequence[StoredRecord]) -> None:
            apply_if_owner(owner, records)
            owner.waiting = f"its changelog: {records[-1].offset + 1} of {end} records"

        was_empty = not self._shared and _is_empty(rows)
        if (start := max(rows.applied.offset, begin)) < end:
            await self._backend.replay({tp: (start, end)}, apply)
        if was_empty and not _is_empty(rows):
            self._note_missing(owner.number)
        rows.note_fresh(asked)
        owner.durable = rows.positions()

    async def _claim(self, owner: PartitionOwner) -> None:
        """Begin an epoch: rows of other owners count if they come before it in the changelog, not after.

        The first owner to append an epoch's marker holds it. An owner that finds that epoch or a higher one retries.
        """
        rows, tp = owner.rows, TopicPartition(CHANGELOG, owner.number)
        owner.waiting = "the log to take its epoch"
        while not owner.closed:
            epoch = rows.applied.epoch + 1
            ack = await self._backend.writer.append(
                CHANGELOG, owner.number, EPOCH, str(epoch).encode(), bounded=False, epoch=epoch
            )
            if rows.applied.offset < ack.offset and not owner.closed:
                gap = {tp: (rows.applied.offset, ack.offset)}
                await self._backend.replay(gap, lambda _, records: apply_if_owner(owner, records))
            if rows.applied.epoch < epoch and not owner.closed:
                rows.begin(epoch, ack.offset + 1, ack.timestamp)
                owner.durable = rows.positions()
                return

    def _check_log(self, number: int) -> None:
        if (fault := self._backend.fault(number)) is not None:
            raise PartitionStopped(fault, CHANGELOG, 0)

    # --- the log ----------------------------------------------------------------------------------------------------

    async def _make_consumers(self, owner: PartitionOwner) -> None:
        tps = [TopicPartition(topic, owner.number) for topic in self._folds]
        bounds = await self._backend.bounds(tps)
        self._check_log(owner.number)
        for tp in tps:
            begin, end = bounds[tp]
            position = max(begin, owner.durable.get(tp.topic, 0))
            if (removed := begin - owner.durable.get(tp.topic, begin)) > 0:
                self._backend.note_removed(tp, removed)
            fold, park = self._folds[tp.topic], partial(self._park, owner, tp.topic)
            consumer = PartitionConsumer(tp, min(position, end), owner.store(tp.topic), fold, self._backend, park)
            consumer.end = end
            if owner.aside.stop is not None and owner.aside.stop[0] == tp.topic:
                consumer.stops_at = owner.aside.stop[1]
            if (owner.number, tp.topic) in self.skipped:
                consumer.skips_below = end
            owner.consumers[tp.topic] = consumer

    async def _park(
        self, owner: PartitionOwner, topic: str, partition: int, record: StoredRecord, cause: str, _: bool
    ) -> None:
        """Append a record to its dead-letter topic, unless this owner or an earlier one did so."""
        if not owner.aside.has(topic, record.offset):
            name = self._backend.topic_name(topic)
            log.warning("record.parked", topic=name, partition=partition, offset=record.offset, cause=cause)
            parked = Parked(topic, partition, record.offset, cause, record.key or b"", record.value or b"")
            await self._backend.writer.append(
                PARKED[topic], partition, record.key, record_codec.encode(parked), bounded=False
            )
            self.parked[PARKED[topic]] += 1
        owner.aside.add(topic, record.offset)


def _is_empty(rows: PartitionRows) -> bool:
    return next(rows.scan(keys.SESSION, b"\xff", 1), None) is None


def apply_if_owner(owner: PartitionOwner, records: Sequence[StoredRecord]) -> None:
    """Apply records to an owner's table, in the replay's thread; raise Unavailable once the owner is closed."""
    if owner.closed:
        raise Unavailable(f"partition {owner.number} is not here any more")
    owner.rows.apply(records)
