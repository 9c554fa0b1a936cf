"""Reads ranges of Kafka partitions without a group, by pooled consumers."""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from streams.kafka.connection import KafkaConnection
from streams.kafka.kafka_writer import EPOCH_HEADER
from streams.log import Apply, StoredRecord
from topics.catalog import TopicPartition
from topics.errors import Unavailable

log = structlog.get_logger(__name__)

#: Seconds without a record after which the brokers count as unavailable.
SILENT_SECONDS: Final = 10.0
BATCH: Final = 2000
POLL_SECONDS: Final = 0.2
#: Read-ahead of consumers: large for long ranges, small for short ones to waste little.
KIB_AHEAD: Final = 16 * 1024
KIB_OF_STRETCH: Final = 1024
#: The largest gap of records that is cheaper to read than to seek over.
NEAR: Final = 64
#: Faults from which librdkafka recovers by itself.
_PASSING: Final = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._PARTITION_EOF,
)


@contextmanager
def _answering() -> Iterator[None]:
    """Convert errors of the client library to Unavailable, including a lack of files or threads."""
    try:
        yield
    except KafkaException as error:
        raise Unavailable(f"Kafka does not answer: {error.args[0].str()}") from error


class Consumers:
    """Pools the consumers of one cluster, which belong to no group; each serves one reader at a time. Any thread.

    Methods that are not async block: call them in worker threads. All raise Unavailable if the brokers do not answer.
    """

    def __init__(self, connection: KafkaConnection, record_limit: int) -> None:
        self._properties = {
            **connection.librdkafka(),
            # librdkafka requires a group name; no consumer joins it.
            "group.id": f"{connection.prefix}.readers",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            # The service writes no transactions. With committed reads, a stranger's open one hides what follows.
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": record_limit,
            "reconnect.backoff.max.ms": 1000,
            # Errors are raised anyway; librdkafka would also print every connection attempt to stderr.
            "log_level": 2,
        }
        self._connection = connection
        #: Idle consumers, by read-ahead (KiB).
        self._free: dict[int, queue.SimpleQueue[Any]] = {
            KIB_AHEAD: queue.SimpleQueue(),
            KIB_OF_STRETCH: queue.SimpleQueue(),
        }
        self._closed = False

    @contextmanager
    def lent(self, kib_ahead: int = KIB_AHEAD) -> Iterator[Any]:
        """Lend a consumer with this read-ahead; create one if none is free."""
        free = self._free[kib_ahead]
        with _answering():
            try:
                consumer = free.get_nowait()
            except queue.Empty:
                consumer = Consumer({**self._properties, "queued.max.messages.kbytes": kib_ahead})
            try:
                with suppress(GeneratorExit):
                    yield consumer
                consumer.unassign()
            except BaseException:
                consumer.close()
                raise
        if self._closed:
            consumer.close()
        else:
            free.put(consumer)

    def place(self, tp: TopicPartition, offset: int = OFFSET_INVALID) -> Place:
        """Return a partition under its name on the brokers, as librdkafka's type."""
        return Place(self._connection.topic(tp.topic), tp.partition, offset)

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def bounds(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return await asyncio.to_thread(self.bounds_now, tps)

    def bounds_now(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        # Not `AdminClient.list_offsets`: it has crashed the process, and leaks (confluent-kafka-python issue 1901).
        def offsets(kind: int) -> dict[Place, int]:
            places = consumer.offsets_for_times([self.place(tp, kind) for tp in tps], SILENT_SECONDS)
            if fault := next((place.error for place in places if place.error is not None), None):
                raise KafkaException(fault)
            return {place: place.offset for place in places}

        with self.lent() as consumer:
            begins, ends = offsets(OFFSET_BEGINNING), offsets(OFFSET_END)
        return {tp: (begins[place], ends[place]) for tp, place in zip(tps, map(self.place, tps), strict=True)}

    # --- records ----------------------------------------------------------------------------------------------------

    async def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[list[StoredRecord], None]:
        reading = self.batches({tp: (start, stop)})
        # A cancelled reader leaves its thread running, so `end` waits for it.
        turn = threading.Lock()

        def taken() -> Mapping[TopicPartition, list[StoredRecord]] | None:
            with turn:
                return next(reading, None)

        def end() -> None:
            with turn:
                reading.close()

        try:
            while (batch := await asyncio.to_thread(taken)) is not None:
                yield batch[tp]
        finally:
            await asyncio.to_thread(end)

    async def values(self, tp: TopicPartition, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        for run in _runs(offsets):
            missing = iter(run)
            offset: int | None = next(missing)
            async with aclosing(self.read(tp, run[0], run[-1] + 1)) as batches:
                async for records in batches:
                    for record in records:
                        while offset is not None and offset < record.offset:
                            yield None
                            offset = next(missing, None)
                        if offset == record.offset:
                            yield record.value
                            offset = next(missing, None)
            while offset is not None:
                yield None
                offset = next(missing, None)

    async def stretch(self, tp: TopicPartition, offsets: Sequence[int], size: int) -> list[StoredRecord]:
        return await asyncio.to_thread(self._stretch, tp, offsets[0], size)

    def _stretch(self, tp: TopicPartition, start: int, size: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        place = self.place(tp, start)
        with self.lent(KIB_OF_STRETCH) as consumer:
            consumer.assign([place])
            heard = time.monotonic()
            while size > 0:
                # The first fetch may take a while; the rest of its records are there at once.
                records = self.take(consumer, 64, 0.01 if found else POLL_SECONDS).get(tp, [])
                if found and not records:
                    break
                found += records
                size -= sum(len(record.value or b"") for record in records)
                if not found and time.monotonic() - heard > SILENT_SECONDS:
                    if self.bounds_now([tp])[tp][0] > start:
                        break  # Retention removed the record, and none follows.
                    where = f"{place.topic}/{place.partition} from offset {start}"
                    raise Unavailable(f"Kafka returned no record of {where} within {SILENT_SECONDS:g} s")
        return found

    async def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        await asyncio.to_thread(self._replay, ranges, apply)

    def _replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        for batch in self.batches(ranges):
            for tp, records in batch.items():
                apply(tp, records)

    def batches(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Generator[dict[TopicPartition, list[StoredRecord]], None, None]:
        """Yield the records of some ranges as they arrive; blocks.

        A range may end in offsets without records (compacted, or control records), so it ends once the consumer's
        position is past it.
        """
        left = {tp: stop for tp, (start, stop) in ranges.items() if start < stop}
        if not left:
            return
        with self.lent() as consumer:
            consumer.assign([self.place(tp, ranges[tp][0]) for tp in left])
            heard = time.monotonic()
            while left:
                batch = self.take(consumer, BATCH, POLL_SECONDS)
                for tp in list(batch):
                    if tp not in left:
                        del batch[tp]
                        continue
                    ended = batch[tp][-1].offset + 1 >= left[tp]
                    batch[tp] = [record for record in batch[tp] if record.offset < left[tp]]
                    if ended:
                        del left[tp]
                        consumer.incremental_unassign([self.place(tp)])
                if batch:
                    heard = time.monotonic()
                    # All records may be past the end, because retention removed the requested ones.
                    if found := {tp: records for tp, records in batch.items() if records}:
                        yield found
                    continue
                for tp, place in zip(list(left), consumer.position([self.place(tp) for tp in left]), strict=True):
                    if place.offset >= left[tp]:
                        del left[tp]
                if left and time.monotonic() - heard > SILENT_SECONDS:
                    # A consumer has no position before its first record, and there is none if all were removed.
                    bounds = self.bounds_now(list(left))
                    left = {tp: stop for tp, stop in left.items() if bounds[tp][0] < stop}
                    if left:
                        raise Unavailable(
                            f"Kafka gives no more of {self.place(next(iter(left))).topic}, though there is more"
                        )

    def take(self, consumer: Any, count: int, seconds: float) -> dict[TopicPartition, list[StoredRecord]]:
        """Return up to `count` records that are there; wait up to `seconds` for the first."""
        batch: dict[TopicPartition, list[StoredRecord]] = {}
        name, tp = "", TopicPartition("", -1)
        for message in consumer.consume(count, seconds):
            if (fault := message.error()) is not None:
                if fault.fatal() or not (fault.retriable() or fault.code() in _PASSING):
                    raise Unavailable(f"Kafka refuses to be read: {fault.str()}")
                continue
            if message.partition() != tp.partition or message.topic() != name:
                name = message.topic()
                tp = TopicPartition(self._connection.catalogued(name), message.partition())
            epoch = 0
            for header, value in message.headers() or ():
                if header == EPOCH_HEADER:
                    epoch = int.from_bytes(value, "big")
            records = batch.get(tp)
            if records is None:
                records = batch[tp] = []
            records.append(
                StoredRecord(message.offset(), message.timestamp()[1], message.key(), message.value(), epoch)
            )
        return batch

    def close(self) -> None:
        self._closed = True
        for free in self._free.values():
            with suppress(queue.Empty):
                while True:
                    free.get_nowait().close()


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Split offsets into runs to read without a seek."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > NEAR:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run


class ChangelogTail:
    """Follows partitions of the changelog in its own thread. Loop only, except `close`, which blocks."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self._changed = threading.Condition()
        self._starts: Mapping[TopicPartition, int] = {}
        self._apply: Apply = lambda tp, records: None
        self._generation = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._behind: Collection[TopicPartition] = ()

    def behind(self) -> Collection[TopicPartition]:
        return self._behind

    def follow(self, starts: Mapping[TopicPartition, int], apply: Apply) -> None:
        with self._changed:
            self._starts, self._apply = dict(starts), apply
            self._behind = starts.keys()
            self._generation += 1
            self._changed.notify()
        if starts and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="changelog-tail", daemon=True)
            self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed, self._starts = True, {}
            self._generation += 1
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(2 * SILENT_SECONDS)

    def _run(self) -> None:
        while not self._closed:
            try:
                self._tail()
            except Exception as error:
                log.warning("standby.behind", error=str(error))
                time.sleep(1.0)

    def _tail(self) -> None:
        """Follow one set of partitions until it is replaced."""
        with self._changed:
            while not self._starts and not self._closed:
                self._changed.wait()
            generation, starts, apply = self._generation, dict(self._starts), self._apply
        if self._closed:
            return
        ends = self._consumers.bounds_now(list(starts))
        behind = {tp for tp, start in starts.items() if start < ends[tp][1]}
        with self._changed:
            if generation == self._generation:
                self._behind = behind
        with self._consumers.lent() as consumer:
            consumer.assign([self._consumers.place(tp, start) for tp, start in starts.items()])
            while generation == self._generation:
                for tp, records in self._consumers.take(consumer, BATCH, POLL_SECONDS).items():
                    apply(tp, records)
                    if records[-1].offset + 1 >= ends[tp][1]:
                        behind.discard(tp)
                    with self._changed:
                        if generation != self._generation:
                            return
                        # The offset to resume from after an error.
                        self._starts = {**self._starts, tp: records[-1].offset + 1}
