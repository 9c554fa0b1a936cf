"""A double of librdkafka's producer: tests acknowledge records, flush by flush."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from types import SimpleNamespace
from typing import Any

import msgspec
from confluent_kafka import KafkaError

from streams.log import StoredRecord
from topics.catalog import TopicPartition

Report = Callable[[KafkaError | None, Any], None]


class Produced(msgspec.Struct):
    """A record given to librdkafka, and its delivery report if requested."""

    tp: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    report: Report | None


class FakeProducer:
    def __init__(self, cluster: Cluster, settings: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.settings = settings
        self.waiting: list[Produced] = []
        self.reports: SimpleQueue[Callable[[], None]] = SimpleQueue()
        #: Reports that were requested, made, and made before the last poll began.
        self.making = Lock()
        self.asked = self.made = self.passed = 0
        self.purged = False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        headers: list[tuple[str, bytes]],
        on_delivery: Report | None = None,
    ) -> None:
        self.cluster.refuse()
        self.waiting.append(Produced(TopicPartition(topic, partition), key, value, headers, on_delivery))

    def produce_batch(self, topic: str, messages: Sequence[dict[str, Any]], partition: int) -> int:
        self.cluster.refuse()
        taken = 0
        for message in messages:
            if message["value"] in self.cluster.unfit:
                message["_error"] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
                continue
            tp = TopicPartition(topic, partition)
            self.waiting.append(Produced(tp, message["key"], message["value"], [], message.get("callback")))
            taken += 1
        return taken

    def poll(self, timeout: float) -> int:
        """Make the reports that have come, or the next one. Runs in a thread."""
        self.passed = self.made
        with suppress(Empty):
            report = self.reports.get(timeout=timeout)
            with self.making:
                while True:
                    report()
                    self.made += 1
                    report = self.reports.get_nowait()
        return 0

    def purge(self, *, blocking: bool) -> None:
        assert not blocking
        self.purged = True
        self.cluster.producers.remove(self)
        self.cluster.gone.append(self)


class Cluster:
    """The brokers, and their producers."""

    def __init__(self) -> None:
        self.producers: list[FakeProducer] = []
        self.gone: list[FakeProducer] = []
        self.ends: dict[TopicPartition, int] = {}
        self.faults: list[Exception] = []
        self.unfit: set[bytes] = set()
        self.now = 1000

    def producer(self, settings: Mapping[str, Any], logger: object) -> FakeProducer:
        producer = FakeProducer(self, settings)
        self.producers.append(producer)
        return producer

    def refuse(self) -> None:
        if self.faults:
            raise self.faults.pop(0)

    @property
    def waiting(self) -> list[Produced]:
        return [record for producer in self.producers for record in producer.waiting]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.waiting]

    @property
    def has_reported(self) -> bool:
        """Whether all reports were passed to the loop."""
        return all(producer.passed == producer.asked for producer in self.producers)

    def acknowledge(self, count: int = 1000) -> None:
        """Accept the next records, with distinct times, and send the requested reports."""
        for producer in self.producers:
            for record in producer.waiting[:count]:
                self._take(producer, record, None)
            del producer.waiting[:count]

    def lose(self, error: KafkaError) -> None:
        for producer in self.producers:
            for record in producer.waiting:
                self._take(producer, record, error)
            producer.waiting.clear()

    def _take(self, producer: FakeProducer, record: Produced, error: KafkaError | None) -> None:
        offset = self.ends.get(record.tp, 0) if error is None else -1
        if error is None:
            self.ends[record.tp] = offset + 1
            self.now += 1
        if record.report is not None:
            at = (2, self.now)
            message = SimpleNamespace(offset=lambda: offset, timestamp=lambda: at)
            producer.asked += 1
            producer.reports.put(partial(record.report, error, message))


class User:
    """The node that uses a writer."""

    def __init__(self) -> None:
        self.delivered: list[tuple[TopicPartition, list[StoredRecord]]] = []
        self.failures: list[BaseException] = []
        self.gaps: list[tuple[TopicPartition, int, int]] = []
        self.valid = True
        self.lapses: list[str] = []
        self.stopped: dict[int, str] = {}
        self.stop_partition = self.stopped.__setitem__
        self.fail, self.lapsed = self.failures.append, self.lapses.append

    def deliver(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        self.delivered.append((tp, list(records)))

    def overtaken(self, tp: TopicPartition, start: int, stop: int) -> None:
        self.gaps.append((tp, start, stop))

    def floor(self, tp: TopicPartition) -> int | None:
        return None

    def needed(self, tp: TopicPartition, start: int, stop: int, most: int | None) -> list[int]:
        return []

    def may_append(self) -> bool:
        return self.valid
