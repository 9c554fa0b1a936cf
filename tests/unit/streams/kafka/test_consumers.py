"""Reading ranges of Kafka: all that is there, ends without records, and consumers that are used again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from streams.kafka import consumers as module
from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import Consumers
from streams.kafka.writer import EPOCH_HEADER
from streams.log import StoredRecord
from topics.catalog import COMMANDS, TopicPartition
from topics.errors import Unavailable

ONE, TWO = TopicPartition(COMMANDS, 0), TopicPartition(COMMANDS, 1)


class Message:
    """A record, or a fault, as librdkafka hands it over."""

    def __init__(self, tp: TopicPartition, record: StoredRecord | None, fault: KafkaError | None = None) -> None:
        self._tp, self._record, self._fault = tp, record, fault

    def error(self) -> KafkaError | None:
        return self._fault

    def topic(self) -> str:
        return self._tp.topic

    def partition(self) -> int:
        return self._tp.partition

    def __getattr__(self, name: str) -> Any:
        record = self._record
        assert record is not None
        return {
            "offset": lambda: record.offset,
            "timestamp": lambda: (2, record.timestamp),
            "key": lambda: record.key,
            "value": lambda: record.value,
            "headers": lambda: [(EPOCH_HEADER, record.epoch.to_bytes(8, "big"))] if record.epoch else None,
        }[name]


class Broker:
    """Partitions, and the consumers that were made."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[StoredRecord]] = {ONE: [], TWO: []}
        self.made: list[FakeConsumer] = []
        self.faults: list[KafkaError | KafkaException] = []

    def consumer(self, settings: object) -> FakeConsumer:
        self.made.append(FakeConsumer(self))
        return self.made[-1]

    def fill(self, tp: TopicPartition, *offsets: int) -> list[StoredRecord]:
        self.records[tp] = [StoredRecord(offset, offset * 10, b"k", b"%d" % offset, 7) for offset in offsets]
        return self.records[tp]


class FakeConsumer:
    """Hands over two records at a time; stands behind what holds no record once it has asked for it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.places: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.closed = False

    def assign(self, places: Sequence[Place]) -> None:
        assert not self.closed
        self.places = {TopicPartition(place.topic, place.partition): place.offset for place in places}

    def incremental_unassign(self, places: Sequence[Place]) -> None:
        for place in places:
            del self.places[TopicPartition(place.topic, place.partition)]

    def unassign(self) -> None:
        self.places = {}

    def close(self) -> None:
        self.closed = True

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self.broker.faults:
            fault = self.broker.faults.pop(0)
            if isinstance(fault, KafkaException):
                raise fault
            return [Message(ONE, None, fault)]
        messages: list[Message] = []
        for tp, place in self.places.items():
            there = [record for record in self.broker.records[tp] if record.offset >= place][:2]
            messages += [Message(tp, record) for record in there]
            if there:
                self.places[tp] = there[-1].offset + 1
            else:
                self.places[tp] = max(place, self.ends.get(tp, 0))
        return messages

    def position(self, places: Sequence[Place]) -> list[Place]:
        return [
            Place(place.topic, place.partition, self.places[TopicPartition(place.topic, place.partition)])
            for place in places
        ]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(module, "Consumer", broker.consumer)
    return broker


def consumers() -> Consumers:
    return Consumers(KafkaConnection(("a:9092",)), 2**20)


def replay(ranges: dict[TopicPartition, tuple[int, int]], those: Consumers) -> dict[TopicPartition, list[StoredRecord]]:
    found: dict[TopicPartition, list[StoredRecord]] = {}
    asyncio.run(those.replay(ranges, lambda tp, records: found.setdefault(tp, []).extend(records)))
    return found


def test_a_range_is_read_to_its_end_and_not_beyond(broker: Broker) -> None:
    one, two = broker.fill(ONE, *range(9)), broker.fill(TWO, *range(5))
    assert replay({ONE: (2, 7), TWO: (0, 5)}, consumers()) == {ONE: one[2:7], TWO: two}
    assert broker.made[0].places == {}


def test_a_range_may_end_in_offsets_that_hold_no_record(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    records = broker.fill(ONE, 0, 3, 4)
    monkeypatch.setattr(FakeConsumer, "__init__", _with_ends(FakeConsumer.__init__, {ONE: 9, TWO: 5}))
    assert replay({ONE: (0, 9), TWO: (2, 5)}, consumers()) == {ONE: records}


def _with_ends(init: Any, ends: dict[TopicPartition, int]) -> Any:
    def made(self: FakeConsumer, broker: Broker) -> None:
        init(self, broker)
        self.ends = ends

    return made


def test_a_range_that_retention_removed_is_empty_though_there_is_more_behind_it(broker: Broker) -> None:
    """Reading it raised a KeyError: a job ended with the name of a partition for an error."""
    broker.fill(ONE, 7, 8)

    async def scene() -> list[StoredRecord]:
        return [record async for batch in consumers().read(ONE, 2, 5) for record in batch]

    assert asyncio.run(scene()) == []


def test_a_stretch_that_retention_removed_is_empty_though_nothing_follows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    those = consumers()
    for begin in (9, 0):
        monkeypatch.setattr(those, "_bounds", lambda tps, begin=begin: {ONE: (begin, 9)})
        if begin:
            assert asyncio.run(those.stretch(ONE, 4, 100)) == []
        else:
            with pytest.raises(Unavailable, match="though it should"):
                asyncio.run(those.stretch(ONE, 4, 100))


@pytest.mark.parametrize("call", ["assign", "consume", "position", "incremental_unassign", "unassign"])
def test_whatever_the_client_library_refuses_is_unavailable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Raw, it ended the lane that read, and the node with it."""
    if call in ("incremental_unassign", "unassign"):
        broker.fill(ONE, 0, 1)
    broken = KafkaException(KafkaError(KafkaError._STATE))

    def refuse(*arguments: object) -> None:
        raise broken

    monkeypatch.setattr(FakeConsumer, call, refuse)
    with pytest.raises(Unavailable, match="Kafka does not answer"):
        replay({ONE: (0, 2)}, consumers())
    assert broker.made[0].closed


def test_empty_ranges_ask_nobody(broker: Broker) -> None:
    assert replay({ONE: (4, 4)}, consumers()) == {}
    assert broker.made == []


async def test_a_consumer_is_used_again_and_two_readings_have_two(broker: Broker) -> None:
    broker.fill(ONE, *range(10))
    those = consumers()
    for _ in range(2):
        assert [record.offset async for batch in those.read(ONE, 0, 3) for record in batch] == [0, 1, 2]
    assert len(broker.made) == 1
    first, second = those.read(ONE, 0, 9), those.read(ONE, 5, 9)
    await anext(first)
    assert [record.offset for record in await anext(second)] == [5, 6]
    assert len(broker.made) == 2
    await first.aclose()
    await second.aclose()
    assert [consumer.places for consumer in broker.made] == [{}, {}]
    those.close()
    assert all(consumer.closed for consumer in broker.made)


@pytest.mark.parametrize(
    "fault",
    [
        KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED),
        KafkaException(KafkaError(KafkaError._FATAL)),
    ],
)
def test_brokers_that_refuse_are_unavailable_and_the_consumer_is_given_up(
    broker: Broker, fault: KafkaError | KafkaException
) -> None:
    broker.fill(ONE, 0)
    broker.faults = [fault]
    those = consumers()
    with pytest.raises(Unavailable):
        replay({ONE: (0, 1)}, those)
    assert broker.made[0].closed
    assert len(replay({ONE: (0, 1)}, those)[ONE]) == 1
    assert len(broker.made) == 2


def test_passing_faults_are_waited_out(broker: Broker) -> None:
    records = broker.fill(ONE, 0, 1)
    broker.faults = [KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._TRANSPORT)]
    assert replay({ONE: (0, 2)}, consumers()) == {ONE: records}


def test_brokers_that_say_nothing_for_long_are_unavailable(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    with pytest.raises(Unavailable, match=f"gives no more of {COMMANDS}, though there is more"):
        replay({ONE: (0, 2)}, consumers())
    assert broker.made[0].closed


async def test_a_reading_that_is_cancelled_waits_for_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    polling, polled, closed = threading.Event(), threading.Event(), threading.Event()

    def batches(self: Consumers, ranges: Any) -> Iterator[dict[TopicPartition, list[StoredRecord]]]:
        try:
            polling.set()
            assert polled.wait(5)
            yield {ONE: []}
        finally:
            closed.set()

    monkeypatch.setattr(Consumers, "batches", batches)
    consumers = Consumers(KafkaConnection(("a:9092",)), 2**20)
    reading = asyncio.ensure_future(anext(consumers.read(ONE, 0, 9)))
    await asyncio.to_thread(polling.wait, 5)
    reading.cancel()
    await asyncio.sleep(0.01)
    polled.set()
    with suppress(asyncio.CancelledError):
        await reading
    assert closed.is_set()
