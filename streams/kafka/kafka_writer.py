"""Writes records to Kafka: those of some iterations of the loop together; delivers them once they are durable."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from streams.kafka.connection import KafkaConnection
from streams.kafka.delivery_reports import DeliveryReports
from streams.log import RECORD_COST, Ack, LogUser, StoredRecord, record_cost
from topics.catalog import CHANGELOG, COMMANDS, FOLDED, JOB_COMMANDS, TopicPartition
from topics.errors import ServiceError, Unavailable
from topics.records import Record

#: The service shows each line of a library at most once a minute.
_library: Final = logging.getLogger("librdkafka")

#: The header of a changelog record with its owner's epoch, eight bytes big-endian.
EPOCH_HEADER: Final = "epoch"
#: The most iterations of the loop for which records wait while each of them brings more.
GATHERED: Final = 8
#: How long records in flight survive an outage of the brokers; clients' waits are bounded elsewhere.
TIMEOUT_MS: Final = 600_000
#: How long a broker may leave a request unanswered: after 9 s without a sign of it another one leads its partitions, by
#: Kafka's defaults, and only then a write finds it.
SILENT_MS: Final = 10_000
#: Topics in which each record needs its own log time, so each gets a delivery report.
TIMED: Final = frozenset({COMMANDS, JOB_COMMANDS})


class _Append(NamedTuple):
    """A record to write, its future, and what its value encodes, if known."""

    key: bytes | None
    value: bytes | None
    epoch: int
    future: asyncio.Future[Ack] | None
    #: Called once it is durable, as an alternative to a future.
    durable: Callable[[], None] | None = None
    content: Record | None = None


class _Flush(NamedTuple):
    """Records of a partition that were passed to librdkafka together."""

    appends: list[_Append]
    size: int


class _Partition:
    """Holds the records of one partition that are not acknowledged. Loop only."""

    __slots__ = ("acknowledged", "in_flight", "pending", "pending_bytes", "timestamps", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.pending: list[_Append] = []
        self.pending_bytes = 0
        self.in_flight: deque[_Flush] = deque()
        #: Reported log times of the oldest flush in flight.
        self.timestamps: list[int] = []
        #: Offset after the last own record, None before the first.
        self.acknowledged: int | None = None


class _Report(NamedTuple):
    """What librdkafka reports of a record."""

    partition: _Partition
    error: KafkaError | None
    offset: int
    timestamp: int
    ends_flush: bool


class KafkaWriter:
    """Implements `LogWriter` for Kafka: idempotent, acknowledged by all in-sync replicas, in order in each partition.

    Delivers acknowledged records of folded topics to the node directly, without fetching them back. Batches of a
    partition are acknowledged in order, so only the last record of a flush needs a report; if librdkafka loses another,
    it fails with a fatal error. Loop only.
    """

    def __init__(self, connection: KafkaConnection, limit: int, record_limit: int) -> None:
        self.limit = limit
        self.queued_bytes = 0
        #: The node: receives durable records, and decides whether appends are still allowed.
        self.user: LogUser | None = None
        #: Called if a partition ends before the records that it acknowledged: (partition, end before, end now).
        self.note_loss: Callable[[TopicPartition, int, int], None] = lambda tp, before, now: None
        self._connection = connection
        self._record_limit = record_limit
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._dirty: dict[_Partition, None] = {}
        self._flushing: asyncio.Handle | None = None
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._appended = self._settled = 0
        self._failure: BaseException | None = None
        self._producers: dict[bool, DeliveryReports[_Report]] = {}
        #: The log time (ms) of the newest acknowledged record, and the monotonic time at which it was acknowledged.
        self._stamped: tuple[int, float] | None = None

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the first append."""
        return asyncio.get_running_loop()

    def log_ms(self) -> int:
        """Return the brokers' time in ms, by the newest acknowledged record; this node's time before the first."""
        if self._stamped is None:
            return int(time.time() * 1000)
        timestamp, at = self._stamped
        return timestamp + int((time.monotonic() - at) * 1000)

    # --- appending --------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        bounded: bool = True,
        epoch: int = 0,
        project: str = "",
        content: Record | None = None,
    ) -> asyncio.Future[Ack]:
        if bounded and self.queued_bytes > self.limit:
            raise Unavailable("the log's queue is full")
        future: asyncio.Future[Ack] = self._loop.create_future()
        there = self._partition(topic, partition)
        there.pending.append(_Append(key, value, epoch, future, content=content))
        self._count(there, 1, record_cost(key, value))
        return future

    def append_rows(
        self,
        topic: str,
        partition: int,
        rows: Mapping[bytes, bytes | None],
        epoch: int,
        durable: Callable[[], None] | None = None,
    ) -> None:
        there, left = self._partition(topic, partition), len(rows)
        size = 0
        for key, value in rows.items():
            left -= 1
            there.pending.append(_Append(key, value, epoch, None, None if left else durable))
            size += len(key) + (len(value) if value else 0)
        if rows:
            self._count(there, len(rows), size + RECORD_COST * len(rows))

    def _partition(self, topic: str, number: int) -> _Partition:
        tp = TopicPartition(topic, number)
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._partitions[tp] = _Partition(tp)
        return partition

    def _count(self, partition: _Partition, count: int, size: int) -> None:
        partition.pending_bytes += size
        self._dirty[partition] = None
        self.queued_bytes += size
        self._appended += count
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self._gather, self._appended, GATHERED)

    def _gather(self, before: int, iterations: int) -> None:
        """Produce once an iteration of the loop has brought nothing more: what came together is sent together."""
        if self._appended > before and iterations:
            self._flushing = self._loop.call_soon(self._gather, self._appended, iterations - 1)
        else:
            self._produce()

    def _produce(self) -> None:
        self._flushing = None
        if self._failure is not None:
            # Records were lost: later ones, such as positions, would claim that they are there.
            self.drop(str(self._failure))
            return
        if self.user is not None and not self.user.may_append():
            reason = "this node may have lost its partitions"
            self.drop(reason)
            self.user.lapsed(reason)
            return
        dirty, self._dirty = self._dirty, {}
        for partition in dirty:
            flush = _Flush(partition.pending, partition.pending_bytes)
            partition.pending, partition.pending_bytes = [], 0
            partition.in_flight.append(flush)
            try:
                self._produce_flush(partition, flush.appends)
            except (KafkaException, BufferError) as error:
                self._refused(str(error))
                return

    def _produce_flush(self, partition: _Partition, appends: list[_Append]) -> None:
        topic, number = partition.tp
        name = self._connection.topic(topic)
        reports = self._reports_of(topic == JOB_COMMANDS)
        producer, note = reports.producer, reports.note
        last = len(appends) - 1

        def report(error: KafkaError | None, message: Any) -> None:
            note(_Report(partition, error, message.offset(), message.timestamp()[1], True))

        def report_time(error: KafkaError | None, message: Any) -> None:
            note(_Report(partition, error, message.offset(), message.timestamp()[1], False))

        if topic == CHANGELOG:
            for index, append in enumerate(appends):
                header: list[tuple[str, str | bytes | None]] = [(EPOCH_HEADER, append.epoch.to_bytes(8, "big"))]
                if index == last:
                    producer.produce(name, append.value, append.key, number, headers=header, on_delivery=report)
                else:
                    producer.produce(name, append.value, append.key, number, headers=header)
            return
        messages: list[dict[str, Any]] = [{"key": append.key, "value": append.value} for append in appends]
        if topic in TIMED:
            for message in messages:
                message["callback"] = report_time
        messages[last]["callback"] = report
        if producer.produce_batch(name, messages, number) != len(messages):
            refused = next(message["_error"] for message in messages if "_error" in message)
            raise KafkaException(refused)

    def _reports_of(self, parts: bool) -> DeliveryReports[_Report]:
        """Return the producer for parts of jobs or the one for the rest: live audio must not wait behind parts."""
        reports = self._producers.get(parts)
        if reports is None:
            producer = Producer(
                {
                    **self._connection.librdkafka(),
                    "acks": "all",
                    "enable.idempotence": True,
                    # A lost record is a fatal error: no later one may be written.
                    "enable.gapless.guarantee": True,
                    "linger.ms": 20 if parts else 0.5,
                    # The largest batch that the topics accept.
                    "message.max.bytes": self._record_limit,
                    "message.timeout.ms": TIMEOUT_MS,
                    "socket.timeout.ms": SILENT_MS,
                    "batch.size": self._record_limit,
                    "queue.buffering.max.messages": 0,
                    "queue.buffering.max.kbytes": 2**31 - 1,
                    "socket.nagle.disable": True,
                    "retry.backoff.ms": 100,
                    "reconnect.backoff.max.ms": 1000,
                    "log_level": 3,
                },
                logger=_Logger(),
            )
            reports = self._producers[parts] = DeliveryReports(producer, self._reported, self._refused)
        return reports

    # --- acknowledgements -------------------------------------------------------------------------------------------

    def _reported(self, reports: list[_Report]) -> None:
        for partition, error, offset, timestamp, ends_flush in reports:
            if self._partitions.get(partition.tp) is not partition:
                continue  # Dropped meanwhile.
            if error is not None:
                self._lost(partition, error)
                return
            partition.timestamps.append(timestamp)
            self._stamped = timestamp, time.monotonic()
            if ends_flush:
                self._acknowledge(partition, offset)

    def _acknowledge(self, partition: _Partition, offset: int) -> None:
        """Settle the oldest flush of a partition, which is durable; its last record is at `offset`."""
        flush, times = partition.in_flight.popleft(), partition.timestamps
        partition.timestamps = []
        appends = flush.appends
        first = offset - len(appends) + 1
        behind, partition.acknowledged = partition.acknowledged, offset + 1
        self._settle(flush)
        topic = partition.tp.topic
        if behind is not None and first < behind:
            self.note_loss(partition.tp, behind, first)
        elif behind is not None and behind != first and topic == CHANGELOG and self.user is not None:
            self.user.overtaken(partition.tp, behind, offset + 1)
        timed = topic in TIMED
        for index, append in enumerate(appends):
            if append.future is not None and not append.future.done():
                append.future.set_result(Ack(first + index, times[index if timed else -1]))
            elif append.durable is not None:
                append.durable()
        if self.user is not None and topic in FOLDED:
            records = [
                StoredRecord(first + index, times[index if timed else -1], append.key, append.value, 0, append.content)
                for index, append in enumerate(appends)
            ]
            self.user.deliver(partition.tp, records)

    def _settle(self, flush: _Flush) -> None:
        self._settled += len(flush.appends)
        self.queued_bytes -= flush.size
        while self._flushes and self._flushes[0][0] <= self._settled:
            done = self._flushes.pop(0)[1]
            if not done.done():
                done.set_result(None)

    def note_end(self, tp: TopicPartition, end: int) -> bool:
        partition = self._partitions.get(tp)
        if partition is None or (start := partition.acknowledged) is None:
            return False
        if start < end and not partition.pending and not partition.in_flight and self.user is not None:
            partition.acknowledged = end
            self.user.overtaken(tp, start, end)
        return start >= end

    def _refused(self, reason: str) -> None:
        self._fail(ServiceError(f"Kafka does not take records: {reason}"))

    def _lost(self, partition: _Partition, error: KafkaError) -> None:
        topic, number = partition.tp
        self._fail(ServiceError(f"{self._connection.topic(topic)}/{number} does not take records: {error.str()}"))

    def _fail(self, error: ServiceError) -> None:
        self._failure = error
        self.drop(str(error))
        if self.user is not None:
            self.user.fail(error)

    def drop(self, reason: str) -> None:
        """Drop records that are not durable, and fail their futures with Unavailable. Kafka may still store some."""
        partitions, self._partitions = self._partitions, {}
        self._dirty, self.queued_bytes = {}, 0
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            producer.leave()
        lost = Unavailable(reason, uncertain=True)
        for partition in partitions.values():
            for append in (*(append for flush in partition.in_flight for append in flush.appends), *partition.pending):
                if append.future is not None and not append.future.done():
                    append.future.set_exception(lost)
                    append.future.exception()  # Mark it retrieved: its caller may have stopped waiting.
        for _, done in self._flushes:
            if not done.done():
                done.set_exception(lost)
        self._flushes.clear()
        self._settled = self._appended

    async def flush(self) -> None:
        if self._settled < self._appended:
            done: asyncio.Future[None] = self._loop.create_future()
            self._flushes.append((self._appended, done))
            await done

    async def close(self) -> None:
        """Close the connections, and drop records that are not durable."""
        self.drop("the node has stopped")
        if self._flushing is not None:
            self._flushing.cancel()


class _Logger:
    """Passes librdkafka's messages to our log. Any thread."""

    def log(self, level: int, text: str, *arguments: object) -> None:
        _library.warning(text % arguments if arguments else text)
