"""librdkafka's producer and consumer on the simulated brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from tests.simulation.log import Link, Stored
from tests.simulation.threads import Thread, Threads
from topics.catalog import TopicPartition

#: Maximum records of a partition per fetch; often there are fewer.
FETCHED: Final = 40
REQUEST_SECONDS: Final = 3.0

Report = Callable[[KafkaError | None, Any], None]


def away() -> KafkaException:
    """Return librdkafka's exception for unavailable brokers."""
    return KafkaException(KafkaError(KafkaError._TRANSPORT))


class _Produced(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Any
    report: Report | None


class _Report:
    __slots__ = ("_offset", "_timestamp")

    def __init__(self, offset: int, timestamp: int) -> None:
        self._offset, self._timestamp = offset, timestamp

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 2, self._timestamp


class Producer:
    """An idempotent producer with one request in flight per partition; waiting records share the next one."""

    def __init__(self, link: Link, context: Any, threads: Threads) -> None:
        self._link = link
        self._threads = threads
        self._polling: Thread | None = None
        self._context = context
        self._queues: defaultdict[TopicPartition, list[_Produced]] = defaultdict(list)
        self._sending: set[TopicPartition] = set()
        self._reports: list[Callable[[], None]] = []
        self._purged = False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        headers: Any,
        on_delivery: Report | None = None,
    ) -> None:
        self._take(TopicPartition(topic, partition), _Produced(key, value, headers, on_delivery))

    def produce_batch(self, topic: str, messages: Sequence[dict[str, Any]], partition: int) -> int:
        tp = TopicPartition(topic, partition)
        for message in messages:
            self._take(tp, _Produced(message["key"], message["value"], [], message.get("callback")))
        return len(messages)

    def _take(self, tp: TopicPartition, record: _Produced) -> None:
        self._queues[tp].append(record)
        if tp not in self._sending:
            self._sending.add(tp)
            cluster = self._link._cluster
            cluster.loop.call_later(0.0005, self._send, tp, context=self._context)

    def _send(self, tp: TopicPartition) -> None:
        batch = self._queues.pop(tp, None)
        if not batch or self._purged:
            self._sending.discard(tp)
            return
        self._link.send(partial(self._arrive, tp, batch))

    def _arrive(self, tp: TopicPartition, batch: list[_Produced]) -> None:
        first, now = self._link._cluster.append(tp, [record[:3] for record in batch])
        self._link.send(partial(self._acknowledged, tp, batch, first, now), self._context)

    def _acknowledged(self, tp: TopicPartition, batch: list[_Produced], first: int, now: int) -> None:
        for index, record in enumerate(batch):
            if record.report is not None:
                self._reports.append(partial(record.report, None, _Report(first + index, now)))
        if self._polling is not None and self._reports:
            self._threads.wake(self._polling)
        self._send(tp)

    def poll(self, timeout: float) -> int:
        """Make the reports that have come; wait for some at most `timeout` seconds. In a thread."""
        if not self._reports:
            self._polling = self._threads.current()
            self._threads.sleep(timeout)
            self._polling = None
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return len(reports)

    def purge(self, *, blocking: bool = True) -> None:
        """Drop unsent records; records in flight may arrive."""
        self._purged = True
        self._queues.clear()


class _Message:
    __slots__ = ("_record", "_tp")

    def __init__(self, tp: TopicPartition, record: Stored) -> None:
        self._tp, self._record = tp, record

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self._tp.topic

    def partition(self) -> int:
        return self._tp.partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return 2, self._record.timestamp

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Any:
        return self._record.headers


class Consumer:
    """A consumer without a group, used in threads."""

    def __init__(self, link: ReadingLink) -> None:
        self._link = link
        self._at: dict[TopicPartition, int] = {}

    def assign(self, places: Sequence[Place]) -> None:
        self._at = {TopicPartition(place.topic, place.partition): place.offset for place in places}

    def incremental_unassign(self, places: Sequence[Place]) -> None:
        for place in places:
            self._at.pop(TopicPartition(place.topic, place.partition), None)

    def unassign(self) -> None:
        self._at = {}

    def position(self, places: Sequence[Place]) -> list[Place]:
        return [Place(p.topic, p.partition, self._at[TopicPartition(p.topic, p.partition)]) for p in places]

    def consume(self, count: int, timeout: float) -> list[_Message]:
        """Return available records; none after `timeout`."""
        link = self._link
        if link.round_trip_or(timeout) and (found := self._fetch(count)):
            return found
        if self._at and not link.down:
            link.wait_for_records(list(self._at), timeout)
        else:
            link.threads.sleep(timeout)
        return [] if link.down else self._fetch(count)

    def _fetch(self, count: int) -> list[_Message]:
        found: list[_Message] = []
        link, chance = self._link, self._link.chance
        link.fault()
        for tp in list(self._at):
            topic = link.cluster.topics[tp]
            at = self._at[tp]
            if at > topic.end or at < topic.begin:
                at = topic.begin
            if at == topic.end:
                continue
            most = min(count - len(found), chance.randint(1, FETCHED))
            index = topic.since(at)
            records = topic.records[index : index + most]
            self._at[tp] = records[-1].offset + 1 if index + len(records) < len(topic.records) else topic.end
            found += [_Message(tp, record) for record in records]
            if len(found) >= count or chance.random() < 0.2:
                break
        return found

    def offsets_for_times(self, places: Sequence[Place], timeout: float) -> list[Place]:
        """Return where partitions begin or end."""
        self._link.round_trip()
        self._link.fault()

        def found(place: Place) -> Place:
            topic = self._link.cluster.topics[TopicPartition(place.topic, place.partition)]
            return Place(place.topic, place.partition, topic.begin if place.offset == OFFSET_BEGINNING else topic.end)

        return list(map(found, places))

    def close(self) -> None:
        self._at = {}


class ReadingLink:
    """A node's link, threads and faults, for its readers."""

    def __init__(self, link: Link, threads: Threads) -> None:
        self.link = link
        self.threads = threads
        self.cluster = link._cluster
        self.chance = self.cluster.chance
        #: Probability with which a fetch fails.
        self.faulty = 0.0
        self.faults = 0

    @property
    def down(self) -> bool:
        return self.link.cut or self.cluster.away

    def fault(self) -> None:
        if self.faulty and self.chance.random() < self.faulty:
            self.faults += 1
            raise away()

    def round_trip_or(self, timeout: float) -> bool:
        """Wait for an answer; return False if there is none."""
        if self.down:
            return False
        seconds = self.chance.uniform(0.0005, 0.006) + self.link.slow * self.chance.random()
        self.threads.sleep(min(seconds, timeout))
        return not self.down and seconds <= timeout

    def round_trip(self, timeout: float = REQUEST_SECONDS) -> None:
        if not self.round_trip_or(timeout):
            self.threads.sleep(timeout)
            raise away()

    def wait_for_records(self, tps: Sequence[TopicPartition], timeout: float) -> None:
        """Wait until one of some partitions gets a record, at most `timeout` seconds."""
        thread = self.threads.current()
        assert thread is not None
        waiting = [True]

        def wake(thread: Thread = thread) -> None:
            if waiting[0]:
                waiting[0] = False
                self.threads.wake(thread)

        for tp in tps:
            self.cluster.watchers[tp].append(wake)
        self.threads.sleep(timeout)
        waiting[0] = False
        for tp in tps:
            if (watchers := self.cluster.watchers.get(tp)) and wake in watchers:
                watchers.remove(wake)
