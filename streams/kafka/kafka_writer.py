"""Writes records to Kafka: gathers them briefly into batches, and delivers them once they are durable."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from streams.kafka.connection import KafkaConnection
from streams.log import RECORD_COST, Ack, LogUser, StoredRecord, record_cost
from topics.catalog import CHANGELOG, COMMANDS, FOLDED, JOB_COMMANDS, TopicPartition
from topics.errors import ServiceError, Unavailable

#: The service shows each line of a library at most once a minute.
_library: Final = logging.getLogger("librdkafka")

#: The header of a changelog record with its owner's epoch, eight bytes big-endian.
EPOCH_HEADER: Final = "epoch"
#: The pause after a flush, per record and at most: a busy node fills its batches.
PACE_SECONDS: Final = 0.0001
SLOWEST_PACE_SECONDS: Final = 0.004
#: Seconds between polls for acknowledgements while any are due.
POLL_SECONDS: Final = 0.001
#: How long records in flight survive an outage of the brokers; clients' waits are bounded elsewhere.
TIMEOUT_MS: Final = 600_000
#: Topics in which each record needs its own log time, so each gets a delivery report.
TIMED: Final = frozenset({COMMANDS, JOB_COMMANDS})


class _Append(NamedTuple):
    """A record to write, and its future."""

    key: bytes | None
    value: bytes | None
    epoch: int
    future: asyncio.Future[Ack] | None


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
        self._connection = connection
        self._record_limit = record_limit
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._dirty: dict[_Partition, None] = {}
        self._in_flight = 0
        self._flushing: asyncio.TimerHandle | asyncio.Handle | None = None
        self._polling: asyncio.TimerHandle | None = None
        self._paced_until = 0.0
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._appended = self._settled = 0
        self._failure: BaseException | None = None
        self._reports: list[tuple[_Partition, KafkaError | None, int, int, bool]] = []
        self._producers: dict[bool, Producer] = {}

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
    ) -> asyncio.Future[Ack]:
        if bounded and self.queued_bytes > self.limit:
            raise Unavailable("the log's queue is full")
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        there = self._partition(topic, partition)
        there.pending.append(_Append(key, value, epoch, future))
        self._count(there, 1, record_cost(key, value))
        return future

    def append_rows(self, topic: str, partition: int, rows: Mapping[bytes, bytes | None], epoch: int) -> None:
        there = self._partition(topic, partition)
        size = 0
        for key, value in rows.items():
            there.pending.append(_Append(key, value, epoch, None))
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
            loop = asyncio.get_running_loop()
            early = self._paced_until - loop.time()
            # Not at once, so that all appends of this turn of the loop go together.
            self._flushing = loop.call_later(early, self._produce) if early > 0 else loop.call_soon(self._produce)

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
        count = 0
        for partition in dirty:
            flush = _Flush(partition.pending, partition.pending_bytes)
            partition.pending, partition.pending_bytes = [], 0
            partition.in_flight.append(flush)
            count += len(flush.appends)
            try:
                self._produce_flush(partition, flush.appends)
            except (KafkaException, BufferError) as error:
                self._fail(ServiceError(f"Kafka does not take records: {error}"))
                return
        self._in_flight += count
        loop = asyncio.get_running_loop()
        self._paced_until = loop.time() + min(SLOWEST_PACE_SECONDS, PACE_SECONDS * count)
        if self._polling is None and self._in_flight:
            self._polling = loop.call_later(POLL_SECONDS, self._poll)

    def _produce_flush(self, partition: _Partition, appends: list[_Append]) -> None:
        topic, number = partition.tp
        name = self._connection.topic(topic)
        producer = self._producer(topic == JOB_COMMANDS)
        last = len(appends) - 1

        def report(error: KafkaError | None, message: Any) -> None:
            self._reports.append((partition, error, message.offset(), message.timestamp()[1], True))

        def report_time(error: KafkaError | None, message: Any) -> None:
            self._reports.append((partition, error, message.offset(), message.timestamp()[1], False))

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

    def _producer(self, parts: bool) -> Producer:
        """Return the producer for parts of jobs or the one for the rest: live audio must not wait behind parts."""
        producer = self._producers.get(parts)
        if producer is None:
            producer = self._producers[parts] = Producer(
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
        return producer

    # --- acknowledgements -------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self._polling = None
        try:
            for producer in list(self._producers.values()):
                producer.poll(0)
        except KafkaException as error:
            self._fail(ServiceError(f"Kafka does not take records: {error.args[0].str()}"))
            return
        reports, self._reports = self._reports, []
        for partition, fault, offset, timestamp, is_last in reports:
            if self._partitions.get(partition.tp) is not partition:
                continue  # Dropped meanwhile.
            if fault is not None:
                self._lost(partition, fault)
                return
            partition.timestamps.append(timestamp)
            if is_last:
                self._acknowledge(partition, offset)
        if self._in_flight and self._polling is None and self._failure is None:
            self._polling = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    def _acknowledge(self, partition: _Partition, offset: int) -> None:
        """Settle the oldest flush of a partition, which is durable; its last record is at `offset`."""
        flush, times = partition.in_flight.popleft(), partition.timestamps
        partition.timestamps = []
        appends = flush.appends
        first = offset - len(appends) + 1
        behind, partition.acknowledged = partition.acknowledged, offset + 1
        self._settle(flush)
        topic = partition.tp.topic
        if behind is not None and behind != first and topic == CHANGELOG and self.user is not None:
            self.user.overtaken(partition.tp, behind, offset + 1)
        timed = topic in TIMED
        for index, append in enumerate(appends):
            if append.future is not None and not append.future.done():
                append.future.set_result(Ack(first + index, times[index if timed else -1]))
        if self.user is not None and topic in FOLDED:
            records = [
                StoredRecord(first + index, times[index if timed else -1], append.key, append.value)
                for index, append in enumerate(appends)
            ]
            self.user.deliver(partition.tp, records)

    def _settle(self, flush: _Flush) -> None:
        self._in_flight -= len(flush.appends)
        self._settled += len(flush.appends)
        self.queued_bytes -= flush.size
        while self._flushes and self._flushes[0][0] <= self._settled:
            done = self._flushes.pop(0)[1]
            if not done.done():
                done.set_result(None)

    def note_end(self, tp: TopicPartition, end: int) -> None:
        partition = self._partitions.get(tp)
        if partition is None or partition.pending or partition.in_flight or partition.acknowledged is None:
            return
        start = partition.acknowledged
        if start < end and self.user is not None:
            partition.acknowledged = end
            self.user.overtaken(tp, start, end)

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
        self._dirty, self._reports, self._in_flight, self.queued_bytes = {}, [], 0, 0
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            producer.purge(blocking=False)
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
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushes.append((self._appended, done))
            await done

    async def close(self) -> None:
        """Close the connections, and drop records that are not durable."""
        self.drop("the node has stopped")
        if self._polling is not None:
            self._polling.cancel()
        if self._flushing is not None:
            self._flushing.cancel()


class _Logger:
    """Passes librdkafka's messages to our log. Any thread."""

    def log(self, level: int, text: str, *arguments: object) -> None:
        _library.warning(text % arguments if arguments else text)
