"""Taking partitions over: tables from the changelog, an epoch on it, then what is on the log and not in the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from streams.folding.agent import Agent
from streams.folding.record import LogRecord
from streams.log import StoredRecord
from streams.node.backend import LogBackend
from streams.node.lane import Lane, PartitionStopped
from streams.node.owner import PartitionOwner
from streams.tables.database import Databases
from streams.tables.rows import PartitionRows
from topics import record_codec
from topics.catalog import CHANGELOG, FOLD_ORDER, KEEP_TOMBSTONES_MS, PARKED, TopicPartition
from topics.keys import EPOCH
from topics.records import Parked

log = structlog.get_logger(__name__)

#: A table that was not written for this share of the time that tombstones stay may have missed one.
FRESH_SHARE: Final = 0.5


class Takeover:
    """Makes owners of partitions ready to serve."""

    def __init__(
        self,
        databases: Databases,
        backend: LogBackend,
        agents: Mapping[str, Agent[Any]],
        shared: bool,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what owners need; `shared`: other nodes may own the partitions before and after this one.

        `changed` is called when an owner does not become ready.
        """
        #: Records moved to dead-letter topics.
        self.parked = 0
        self._databases = databases
        self._backend = backend
        self._agents = agents
        self._shared = shared
        self._changed = changed

    def open(self, number: int) -> PartitionRows:
        """Open the table of a partition."""
        return PartitionRows(number, self._databases.open(number), self._backend.writer, self._backend.now_ms)

    def open_standby(self, number: int) -> PartitionRows:
        """Open the table of a partition to keep up with its changelog; an empty one in place of one that is too old."""
        rows = self.open(number)
        return self.open_anew(rows) if self._is_old(rows) else rows

    def open_anew(self, rows: PartitionRows) -> PartitionRows:
        """Return an empty table in place of one."""
        rows.close()
        self._databases.wipe(rows.number)
        return self.open(rows.number)

    async def run(self, owners: Sequence[PartitionOwner], survey: Callable[[PartitionOwner], Any]) -> None:
        """Make owners ready, but for the last step, `serve`.

        Raises:
            Unavailable: the log does not answer.
        """
        await self._restore(owners)
        if self._shared:
            await asyncio.gather(*map(self._claim, owners))
        await self._make_lanes(owners)
        for topics in FOLD_ORDER:
            await self._fold_backlog(owners, topics)
        for owner in owners:
            if not owner.closed and owner.stopped is None:
                owner.waiting = "a look through its rows"
                await survey(owner)

    # --- the table --------------------------------------------------------------------------------------------------

    async def _restore(self, owners: Sequence[PartitionOwner]) -> None:
        """Bring the tables up to the end of the changelog."""
        bounds = await self._backend.bounds([TopicPartition(CHANGELOG, owner.number) for owner in owners])
        for owner in owners:
            self._wipe_unfit(owner, *bounds[TopicPartition(CHANGELOG, owner.number)])
        by_number = {owner.number: owner for owner in owners}
        ranges = {
            tp: (by_number[tp.partition].rows.applied.offset, stop)
            for tp, (_, stop) in bounds.items()
            if by_number[tp.partition].rows.applied.offset < stop
        }

        def apply(tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
            owner = by_number[tp.partition]
            bring_up(owner, records)
            owner.waiting = f"its changelog: {records[-1].offset + 1} of {ranges[tp][1]} records"

        await self._backend.replay(ranges, apply)
        for owner in owners:
            owner.durable = owner.rows.positions()

    def _wipe_unfit(self, owner: PartitionOwner, begin: int, end: int) -> None:
        """Begin anew with a table that cannot be brought up to its changelog."""
        applied = owner.rows.applied
        if applied.offset > end:
            reason = f"its changelog ends at {end}, and it holds what was at {applied.offset}: it is of another log"
        elif applied.offset and applied.offset < begin:
            reason = "its changelog begins above it"
        elif self._is_old(owner.rows) and applied.offset < end:
            reason = "it is older than the changelog's tombstones"
        else:
            return
        log.warning("table.wiped", partition=owner.number, reason=reason)
        owner.take_rows(self.open_anew(owner.rows))

    def _is_old(self, rows: PartitionRows) -> bool:
        """Return whether a table may have missed tombstones that the changelog has no more."""
        at = rows.applied.at
        return bool(at) and self._backend.now_ms() - at > FRESH_SHARE * KEEP_TOMBSTONES_MS

    async def _claim(self, owner: PartitionOwner) -> None:
        """Begin an epoch of this owner: what others wrote before it counts, what they write after it does not.

        The first record of an epoch on the changelog makes it. Who finds another's there, or a higher one, tries again.
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
                await self._backend.replay(gap, lambda _, records: bring_up(owner, records))
            if rows.applied.epoch < epoch and not owner.closed:
                rows.begin(epoch, ack.offset + 1)
                owner.durable = rows.positions()
                return

    # --- what is on the log -----------------------------------------------------------------------------------------

    async def _make_lanes(self, owners: Sequence[PartitionOwner]) -> None:
        tps = [TopicPartition(topic, owner.number) for owner in owners for topic in self._agents]
        bounds = await self._backend.bounds(tps)
        unnoted = {owner.number for owner in owners if not owner.durable}
        committed = await self._backend.committed([tp for tp in tps if tp.partition in unnoted])
        for owner in owners:
            positions = owner.durable
            for topic, agent in self._agents.items():
                tp = TopicPartition(topic, owner.number)
                begin, end = bounds[tp]
                position = max(begin, positions.get(topic, committed.get(tp, 0)))
                lane = Lane(tp, min(position, end), owner.store(topic), agent, self._backend, self._park(topic))
                lane.end = end
                owner.lanes[topic] = lane

    async def _fold_backlog(self, owners: Sequence[PartitionOwner], topics: Sequence[str]) -> None:
        async def fold(owner: PartitionOwner) -> None:
            for lane in (owner.lanes[topic] for topic in topics):
                owner.waiting = f"records {lane.position} to {lane.end} of {lane.topic}"
                try:
                    await lane.catch_up()
                except PartitionStopped as error:
                    self.stop(owner, error)
                    return

        await asyncio.gather(*(fold(owner) for owner in owners if not owner.closed and owner.stopped is None))

    def stop(self, owner: PartitionOwner, error: PartitionStopped) -> None:
        """Serve a partition no more: it is in the health check and in the log, loudly."""
        log.error("partition.stopped", partition=owner.number, error=str(error))
        owner.stopped, owner.serving, owner.waiting = str(error), False, None
        self._changed()

    def _park(self, topic: str) -> Any:
        async def park(partition: int, record: LogRecord, cause: str) -> None:
            self.parked += 1
            name = self._backend.topic_name(topic)
            log.warning("record.parked", topic=name, partition=partition, offset=record.offset, cause=cause)
            parked = Parked(topic, partition, record.offset, cause, record.key or b"", record.value or b"")
            await self._backend.writer.append(
                PARKED[topic], partition, record.key, record_codec.encode(parked), bounded=False
            )

        return park


def bring_up(owner: PartitionOwner, records: Sequence[StoredRecord]) -> None:
    """Apply records to the table of an owner, unless it is a stand-by's by now."""
    if not owner.closed:
        owner.rows.apply(records)
