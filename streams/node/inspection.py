"""Facts about a node for its operator, gathered on request; nothing is kept up to date in between."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Final, Literal

import msgspec

from streams.log import StoredRecord
from streams.node.node import Node
from streams.node.owner import PartitionOwner
from streams.workers.worker_slot import WorkerSlot
from topics import record_codec
from topics.catalog import CHANGELOG, FOLDED, PARKED, TopicPartition
from topics.errors import EarshotError, RecordError
from topics.ports.nodes import (
    NEWEST_PARKED,
    ParkedFacts,
    ParkedRecord,
    PartitionFacts,
    QueueFacts,
    StandbyFacts,
    TopicPlace,
    WorkerFacts,
)
from topics.times import utc_time

#: Seconds to wait for the log's answer; a later answer serves the next request.
LOG_SECONDS: Final = 2.0
LONGEST_CAUSE: Final = 500

Bounds = Mapping[TopicPartition, tuple[int, int]]


class LogFacts(msgspec.Struct, frozen=True):
    """The log's facts about a node's partitions."""

    bounds: Bounds
    #: For each partition that is folded or followed, the records that wait for it, and seconds since the first came.
    behind: Mapping[TopicPartition, tuple[int, float]]
    parked: ParkedFacts


#: When the log does not answer.
UNKNOWN: Final = LogFacts({}, {}, ParkedFacts(0, []))


class Inspection:
    """Inspects the partitions and queues of a node, and reads parked records. Loop only."""

    def __init__(self, node: Node, queue_bytes: int) -> None:
        """Inspect a node whose log queues at most `queue_bytes`."""
        self._node = node
        self._queue_bytes = queue_bytes
        self._reading: asyncio.Task[LogFacts] | None = None
        #: For each dead-letter topic, the first offset not read yet; below, the newest records read.
        self._read_to: dict[TopicPartition, int] = {}
        self._newest: dict[TopicPartition, deque[tuple[int, ParkedRecord]]] = {}

    async def log_facts(self) -> LogFacts | str:
        """Return the log's facts, or why there are none. Concurrent callers share one read."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_log(), name="inspection")
            self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        reading = self._reading
        await asyncio.wait({reading}, timeout=LOG_SECONDS)
        if not reading.done():
            return f"the log did not answer within {LOG_SECONDS:g} s"
        error = None if reading.cancelled() else reading.exception()
        if isinstance(error, EarshotError):
            return str(error)
        return reading.result()

    def partitions(self, log: LogFacts) -> list[PartitionFacts]:
        """Return the node's partitions by number; missing bounds are replaced by the ends that the node knows."""
        return [_partition(owner, log) for owner in sorted(self._node.owners, key=lambda owner: owner.number)]

    def standbys(self, log: LogFacts) -> list[StandbyFacts]:
        """Return the partitions that this node stands by for, by number."""
        places = sorted(self._node.partitions.standbys.places().items())
        return [
            StandbyFacts(number, *log.behind.get(TopicPartition(CHANGELOG, number), (0, 0.0)), fault)
            for number, (_, fault) in places
        ]

    def clock_ahead_seconds(self) -> float:
        """Return how far this machine's clock is ahead of the log's, as far as this node knows."""
        return round((self._node.backend.now_ms() - self._node.backend.log_ms()) / 1000, 1)

    def queues(self) -> list[QueueFacts]:
        node = self._node
        audio, parts = node.session_workload.audio, node.sender.quota
        waiting, places = node.job_workload.runner.load()
        return [
            QueueFacts(
                "records that wait for the log",
                bytes=node.backend.writer.queued_bytes,
                bytes_bound=self._queue_bytes,
                items=len(node.sender.verdicts),
            ),
            QueueFacts("parts of recordings that wait for the log", bytes=parts.used, bytes_bound=parts.limit),
            QueueFacts("fresh audio in memory", bytes=audio.size, bytes_bound=audio.limit),
            QueueFacts("sessions to analyse", items=len(node.session_workload.analyser.ready)),
            QueueFacts(f"services of jobs, {places} at a time", items=waiting),
        ]

    def workers(self) -> list[WorkerFacts]:
        return [_worker(slot) for slot in self._node.workers.slots() if slot.seated or slot.count]

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_log(self) -> LogFacts:
        numbers = [owner.number for owner in self._node.owners]
        standbys = self._node.partitions.standbys.places()
        places = {TopicPartition(CHANGELOG, number): applied for number, (applied, _) in standbys.items()}
        places |= {one.tp: one.position for owner in self._node.owners for one in owner.consumers.values()}
        asked = {TopicPartition(topic, n) for topic in (*FOLDED, *PARKED.values()) for n in numbers} | places.keys()
        bounds = await self._node.backend.bounds(sorted(asked))
        behind = await asyncio.gather(*(self._behind(tp, place, bounds[tp][1]) for tp, place in places.items()))
        parked = {tp: bounds[tp] for tp in bounds if tp.topic in PARKED.values()}
        for tp in self._newest.keys() - parked.keys():  # Other nodes own these now.
            del self._newest[tp]
            self._read_to.pop(tp, None)
        for tp, (begin, end) in parked.items():
            await self._read_parked(tp, begin, end)
        shown = ParkedFacts(sum(end - begin for begin, end in parked.values()), self._shown(parked))
        return LogFacts(bounds, dict(zip(places, behind, strict=True)), shown)

    async def _behind(self, tp: TopicPartition, position: int, end: int) -> tuple[int, float]:
        """Return how many records from a position on are left, and the age of the first in seconds."""
        if position < end:
            async with aclosing(self._node.backend.read(tp, position, end)) as reading:
                async for records in reading:
                    if records:
                        age_ms = self._node.backend.log_ms() - records[0].timestamp
                        return end - position, round(max(0, age_ms) / 1000, 1)
        return 0, 0.0  # Compaction may have removed all of them.

    async def _read_parked(self, tp: TopicPartition, begin: int, end: int) -> None:
        start = max(begin, end - NEWEST_PARKED, self._read_to.get(tp, 0))
        if start >= end:
            return
        newest = self._newest.setdefault(tp, deque(maxlen=NEWEST_PARKED))
        async with aclosing(self._node.backend.read(tp, start, end)) as reading:
            async for records in reading:
                newest.extend((record.offset, self._parked(record)) for record in records)
                if records:
                    self._read_to[tp] = records[-1].offset + 1
                await asyncio.sleep(0)  # Each record may hold a chunk.
        self._read_to[tp] = end

    def _parked(self, record: StoredRecord) -> ParkedRecord:
        at = utc_time(record.timestamp)
        try:
            parked = record_codec.decode_parked(record.value)
        except RecordError as error:
            return ParkedRecord("", 0, record.offset, at, f"unreadable itself: {error}"[:LONGEST_CAUSE])
        topic = self._node.backend.topic_name(parked.topic)
        return ParkedRecord(topic, parked.partition, parked.offset, at, parked.cause[:LONGEST_CAUSE])

    def _shown(self, parked: Bounds) -> list[ParkedRecord]:
        there: Iterable[ParkedRecord] = (
            record for tp, (begin, _) in parked.items() for at, record in self._newest.get(tp, ()) if at >= begin
        )
        return sorted(there, key=lambda record: record.at, reverse=True)[:NEWEST_PARKED]


def _worker(slot: WorkerSlot) -> WorkerFacts:
    process = slot.process
    if process is None:
        state: Literal["starting", "waiting"] = "starting" if slot.seated else "waiting"
        return WorkerFacts(None, slot.owner, state, 0.0, 0, slot.count, slot.deaths)
    return WorkerFacts(
        process.child.number,
        slot.owner,
        "busy" if len(process) else "idle",
        round(process.load, 3),
        len(process.sessions),
        slot.count,
        slot.deaths,
    )


def _partition(owner: PartitionOwner, log: LogFacts) -> PartitionFacts:
    places = []
    for _, consumer in sorted(owner.consumers.items()):
        behind = max(consumer.end, log.bounds.get(consumer.tp, (0, 0))[1]) - consumer.position
        seconds = log.behind.get(consumer.tp, (0, 0.0))[1] if behind > 0 else 0.0
        places.append(TopicPlace(consumer.topic, consumer.position, max(0, behind), seconds))
    return PartitionFacts(
        owner.number,
        "stopped" if owner.stopped else "serving" if owner.serving else "coming",
        owner.rows.epoch if owner.has_table else 0,
        places,
        owner.stopped or owner.waiting,
    )
