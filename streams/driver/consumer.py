"""The consumer: one event per poll and partition, and commits below the oldest batch that is not finished.

Stock Faust makes four tasks, an event and an acknowledgement for every record. Here the records of one poll reach the
agent of a partition as one event whose value is the list of raw records. Changelog records keep the stock path, since
Faust's own recovery reads them one by one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from aiokafka.errors import KafkaError
from faust.serializers.schemas import Schema
from faust.transport.consumer import Consumer
from faust.types import TP, ConsumerMessage
from mode.utils.futures import notify

from streams.driver.deliveries import Deliveries

POLL_SECONDS: Final = 1.0
#: While partitions are held: a poll that waits does not see that they are resumed.
HELD_POLL_SECONDS: Final = 0.02


class BatchSchema(Schema):  # type: ignore[misc]
    """Hands the list of raw records through, undecoded: a record that does not decode is parked by the agent."""

    def compile(self, app: Any, **kwargs: Any) -> Any:
        """Return the function that makes an event of a message."""

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return app.create_event(None, message.value, None, message)

        return decode


class BatchConsumer(Consumer):  # type: ignore[misc]
    """The hardened consumer, over whichever transport it is mixed into."""

    #: Least seconds from one poll to the next: a poll costs more than a record, so a busy node takes larger ones.
    pace: ClassVar[float] = 0.005

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._deliveries: defaultdict[TP, Deliveries] = defaultdict(Deliveries)
        self._start_offsets: dict[TP, int] = {}
        #: First offset of what was polled and not delivered.
        self._dropped: dict[TP, int] = {}
        #: First offset polled behind a gap: a gap that is met twice is in the log, another came from a seek too far.
        self._beyond: dict[TP, int] = {}
        #: Some stream is paused.
        self._held = False
        super().__init__(*args, **kwargs)

    # --- partitions -------------------------------------------------------------------------------------------------

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        """Deliver nothing of these partitions."""
        tps = set(tps)
        super().pause_partitions(tps)
        # Room in their queues would resume them, and a poll in flight still delivers what it has of them.
        self._buffered_partitions -= tps
        self._held = any(map(self._is_stream_tp, self._paused_partitions))

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Deliver changelogs again, but not the streams.

        Faust resumes the streams before it seeks their committed offsets and clears the queues of the agents: what was
        delivered in between could be lost. The node calls `resume_streams` once the rebalance has ended.
        """
        super().resume_partitions(set(filter(self._is_changelog_tp, tps)))

    def resume_streams(self, topics: Container[str]) -> None:
        """Deliver the owned partitions of these topics."""
        super().resume_partitions({TP(*tp) for tp in self.assignment() if tp.topic in topics})
        self._held = any(map(self._is_stream_tp, self._paused_partitions))

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take partitions over; nothing of their streams is delivered before `resume_streams`.

        Faust pauses them later, while the flow may be on and the offsets to begin at are not known yet.
        """
        self.pause_partitions(assigned)
        await super().on_partitions_assigned(assigned, generation_id)

    def on_buffer_full(self, tp: TP) -> None:
        """Fetch nothing of a partition until its queue has room; a paused partition stays paused then."""
        if tp not in self._paused_partitions:
            super().on_buffer_full(tp)

    def _is_stream_tp(self, tp: TP) -> bool:
        return not self._is_changelog_tp(tp)

    # --- delivery ---------------------------------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            clock, polled = asyncio.get_running_loop().time, 0.0
            while not (self.should_stop or fetcher.should_stop):
                if (early := polled + self.pace - clock()) > 0:
                    await asyncio.sleep(early)
                if not self.flow_active:
                    await self.wait(self.can_resume_flow)
                if self._dropped:
                    await self._seek_dropped()
                    polled = clock()
                    if self._dropped:
                        continue
                if not self._get_active_partitions():
                    # Stock Faust sleeps for a second.
                    await asyncio.sleep(HELD_POLL_SECONDS)
                    continue
                generation = self.app.consumer_generation_id
                seconds = HELD_POLL_SECONDS if self._held or self._buffered_partitions else POLL_SECONDS
                records, active = await self._wait_next_records(timeout=seconds)
                polled = clock()
                for polled_tp, batch in (records or {}).items():
                    tp = TP(polled_tp.topic, polled_tp.partition)
                    # A poll that was in flight over a rebalance: the positions it was made at are no longer ours.
                    stale = not self.flow_active or generation != self.app.consumer_generation_id
                    if stale or not (active is None or tp in active or tp in self._buffered_partitions):
                        self._dropped.setdefault(tp, batch[0].offset)
                    else:
                        await self._deliver(tp, batch)
                if not records:
                    await asyncio.sleep(0)
        except (*self.consumer_stopped_errors, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _seek_dropped(self) -> None:
        """Go back to what was polled and not delivered."""
        dropped, self._dropped = self._dropped, {}
        assigned = self.assignment()
        for tp, offset in dropped.items():
            if tp not in assigned:
                continue
            try:
                expected = self._read_offset[tp]
                if expected is None:
                    position = await self.position(tp)
                    expected = offset if position is None else min(offset, position)
                await self._seek(tp, expected)
            except KafkaError:  # Another rebalance took the partition meanwhile, or the broker is away.
                self._dropped[tp] = offset

    async def _deliver(self, tp: TP, records: Sequence[Any]) -> None:
        expected = self._read_offset[tp]
        if expected is not None and records[0].offset < expected:
            records = [record for record in records if record.offset >= expected]
        if not records:
            return
        first, beyond = records[0].offset, self._beyond.pop(tp, None)
        if expected is not None and first > expected and first != beyond and self._is_stream_tp(tp):
            # Two seeks may cross. What is really missing is missing the second time too.
            self._beyond[tp] = first
            self._dropped[tp] = expected
            return
        self._read_offset[tp] = records[-1].offset + 1
        if self._is_changelog_tp(tp):
            for record in records:
                await self.callback(self._message(tp, record, record.key, record.value))
        else:
            self._deliveries[tp].add(records[0].offset, records[-1].offset + 1)
            await self.callback(self._message(tp, records[0], None, records))

    def _message(self, tp: TP, first: Any, key: bytes | None, value: Any) -> ConsumerMessage:
        generation = self.app.consumer_generation_id
        return ConsumerMessage(
            tp.topic, tp.partition, first.offset, first.timestamp / 1000.0, 0, None, key, value, None, 0, 0, tp,
            generation_id=generation,
        )  # fmt: skip

    # --- acknowledgement and commit ---------------------------------------------------------------------------------

    def ack(self, message: Any) -> bool:
        """Note that Faust let go of a message. Nothing becomes committable by it: Faust acknowledges also what an
        agent raised on, and what it skipped because a rebalance had begun."""
        message.acked = True
        self._unacked_messages.discard(message)
        notify(self._waiting_for_ack)
        return False

    def finish(self, message: Any) -> None:
        """Note that the agent is done with a batch; a batch of an earlier assignment counts for nothing."""
        if message.generation_id == self.app.consumer_generation_id:
            self._deliveries[message.tp].finish(message.offset, message.value[-1].offset + 1)

    async def perform_seek(self) -> None:
        """Go back to the committed offsets, or to the first record; deliveries before count for nothing any more."""
        self._deliveries.clear()
        await super().perform_seek()
        # Stock Faust leaves these where they are, behind records whose delivery the rebalance cut short.
        fresh = [tp for tp in self.assignment() if self._is_stream_tp(tp) and self._committed_offset[tp] is None]
        for tp, offset in (await self.earliest_offsets(*fresh)).items() if fresh else ():
            await self._seek(tp, offset)
            self._read_offset[TP(*tp)] = offset
        self._start_offsets = {tp: self._read_offset[tp] or 0 for tp in self.assignment()}

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Forget the deliveries of partitions that went away."""
        await super().on_partitions_revoked(revoked)
        for tp in revoked:
            self._deliveries.pop(tp, None)

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Flush everything that was written, then commit below the lowest offset in work."""
        offsets = self._committable()
        if not offsets:
            return False
        await self.app.producer.flush()
        self.app.persist_offsets()
        assigned = self.assignment()
        offsets = {tp: offset for tp, offset in offsets.items() if tp in assigned}
        if not offsets or not await self._commit(offsets):
            return False
        self._committed_offset.update(offsets)
        return True

    def _committable(self) -> Mapping[TP, int]:
        return {
            tp: deliveries.committable
            for tp, deliveries in self._deliveries.items()
            if deliveries.committable is not None and deliveries.committable != self._committed_offset[tp]
        }

    def committed_offset(self, tp: TP) -> int | None:
        """Return the committed offset of a partition as far as this process knows it."""
        offset: int | None = self._committed_offset[tp]
        return offset

    def start_offset(self, tp: TP) -> int:
        """Return the offset at which reading began after the last rebalance, 0 where nothing was committed."""
        return self._start_offsets.get(tp, 0)

    def working_since(self) -> float | None:
        """Return when the oldest delivery in work was handed over (monotonic seconds), None when all are done."""
        since = (deliveries.oldest_since for deliveries in self._deliveries.values())
        return min((second for second in since if second is not None), default=None)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: stock Faust reads a monitor that batches bypass; the health check watches progress instead."""
