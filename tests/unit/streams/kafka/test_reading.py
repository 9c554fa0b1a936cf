"""Reading Kafka: ranges and single records, complete reads, and reused consumers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from unittest import mock

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.kafka import consumers as module
from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import NEAR, ChangelogTail, Consumers
from streams.kafka.kafka_backend import KafkaBackend
from streams.kafka.kafka_writer import EPOCH_HEADER
from streams.log import StoredRecord
from tests.waiting import turn, wait_for
from topics.catalog import COMMANDS, TopicPartition
from topics.errors import Unavailable

ONE, TWO = TopicPartition(COMMANDS, 0), TopicPartition(COMMANDS, 1)


def message(**said: object) -> mock.Mock:
    return mock.Mock(**{f"{name}.return_value": value for name, value in said.items()})


def record_message(tp: TopicPartition, record: StoredRecord) -> mock.Mock:
    headers = [(EPOCH_HEADER, record.epoch.to_bytes(8, "big"))] if record.epoch else None
    at = {"topic": tp.topic, "partition": tp.partition, "offset": record.offset, "timestamp": (2, record.timestamp)}
    return message(error=None, **at, key=record.key, value=record.value, headers=headers)


class Broker:
    """Partitions, and the consumers created."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[StoredRecord]] = {ONE: [], TWO: []}
        #: Where partitions begin, and the ends of those without records.
        self.begins: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.made: list[FakeConsumer] = []
        #: The first offset of each read.
        self.assigned: list[int] = []
        self.faults: list[KafkaError] = []

    def consumer(self, settings: object) -> FakeConsumer:
        self.made.append(FakeConsumer(self))
        return self.made[-1]

    def fill(self, tp: TopicPartition, *offsets: int) -> list[StoredRecord]:
        self.records[tp] = [StoredRecord(offset, offset * 10, b"k", b"%d" % offset, 7) for offset in offsets]
        return self.records[tp]


class FakeConsumer:
    """Returns two records at a time; moves past offsets without records after a read."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.places: dict[TopicPartition, int] = {}
        self.closed = False

    def assign(self, places: Sequence[Place]) -> None:
        assert not self.closed
        self.broker.assigned += [place.offset for place in places]
        self.places = {TopicPartition(place.topic, place.partition): place.offset for place in places}

    def incremental_unassign(self, places: Sequence[Place]) -> None:
        for place in places:
            del self.places[TopicPartition(place.topic, place.partition)]

    def unassign(self) -> None:
        self.places = {}

    def close(self) -> None:
        self.closed = True

    def consume(self, count: int, timeout: float) -> list[mock.Mock]:
        if self.broker.faults:
            return [message(error=self.broker.faults.pop(0))]
        messages: list[mock.Mock] = []
        for tp, place in self.places.items():
            there = [record for record in self.broker.records[tp] if record.offset >= place][:2]
            messages += [record_message(tp, record) for record in there]
            self.places[tp] = there[-1].offset + 1 if there else max(place, self.broker.ends.get(tp, 0))
        return messages

    def position(self, places: Sequence[Place]) -> list[Place]:
        asked = [TopicPartition(place.topic, place.partition) for place in places]
        return [Place(*tp, self.places[tp]) for tp in asked]

    def offsets_for_times(self, places: Sequence[Place], timeout: float) -> list[Place]:
        begins = self.broker.begins
        asked = [(TopicPartition(place.topic, place.partition), place.offset) for place in places]
        return [Place(*tp, begins.get(tp, 0) if kind == OFFSET_BEGINNING else 10) for tp, kind in asked]


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


def test_range_is_read_exactly_to_its_end(broker: Broker) -> None:
    one, two = broker.fill(ONE, *range(9)), broker.fill(TWO, *range(5))
    # Passing faults are retried.
    broker.faults = [KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._TRANSPORT)]
    assert replay({ONE: (2, 7), TWO: (0, 5)}, consumers()) == {ONE: one[2:7], TWO: two}
    assert broker.made[0].places == {}


def test_range_may_end_in_offsets_without_records(broker: Broker) -> None:
    records = broker.fill(ONE, 0, 3, 4)
    broker.ends = {ONE: 9, TWO: 5}
    assert replay({ONE: (0, 9), TWO: (2, 5)}, consumers()) == {ONE: records}


async def test_expired_range_is_empty_before_later_records(broker: Broker) -> None:
    """Reading it raised a KeyError: a job ended with a partition's name as its error."""
    broker.fill(ONE, 7, 8)
    assert [batch async for batch in consumers().read(ONE, 2, 5) if batch] == []


def test_silence_is_unavailable_unless_all_records_were_removed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    with pytest.raises(Unavailable, match=f"gives no more of {COMMANDS}, though there is more"):
        replay({ONE: (0, 2)}, consumers())
    assert broker.made[0].closed
    with pytest.raises(Unavailable, match="returned no record of"):
        asyncio.run(consumers().stretch(ONE, [4], 100))
    broker.begins = {ONE: 9}
    assert replay({ONE: (0, 2)}, consumers()) == {}
    assert asyncio.run(consumers().stretch(ONE, [4], 100)) == []


@pytest.mark.parametrize("call", ["assign", "consume", "position", "incremental_unassign", "unassign"])
def test_client_library_errors_raise_unavailable(broker: Broker, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Unwrapped, it ended the reading consumer and so the node."""
    if call in ("incremental_unassign", "unassign"):
        broker.fill(ONE, 0, 1)
    refuse = mock.Mock(side_effect=KafkaException(KafkaError(KafkaError._STATE)))
    monkeypatch.setattr(FakeConsumer, call, refuse)
    with pytest.raises(Unavailable, match="Kafka does not answer"):
        replay({ONE: (0, 2)}, consumers())
    assert broker.made[0].closed


async def test_failed_consumer_creation_raises_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example when no more files may be opened."""
    refused = mock.Mock(side_effect=KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE)))
    monkeypatch.setattr(module, "Consumer", refused)
    those = consumers()
    for asked in (those.stretch(ONE, [0], 1), those.bounds([ONE])):
        with pytest.raises(Unavailable, match="Kafka does not answer"):
            await asked
    assert refused.call_count == 2


async def test_closing_reader_reports_failed_unassign(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.fill(ONE, *range(10))
    reading = consumers().read(ONE, 0, 9)
    await anext(reading)
    monkeypatch.setattr(FakeConsumer, "unassign", mock.Mock(side_effect=KafkaException(KafkaError(KafkaError._STATE))))
    with pytest.raises(Unavailable, match="Kafka does not answer"):
        await reading.aclose()
    assert broker.made[0].closed


async def test_consumer_is_reused_but_not_shared_by_concurrent_reads(broker: Broker) -> None:
    broker.fill(ONE, *range(10))
    those = consumers()
    await those.replay({ONE: (4, 4)}, mock.Mock())
    assert broker.made == [], "an empty range needs none"
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


def test_changing_followed_partitions_does_not_wait_for_batch(broker: Broker) -> None:
    """The loop changes it, once for each partition that is assigned or revoked."""
    one, two = broker.fill(ONE, 0, 1), broker.fill(TWO, 0)
    applying, free, followed = threading.Event(), threading.Event(), threading.Event()

    def apply_slowly(tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        assert (tp, records) == (ONE, one)
        applying.set()
        assert free.wait(60)

    def apply(tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        assert (tp, records) == (TWO, two)
        followed.set()

    tail = ChangelogTail(consumers())
    tail.follow({ONE: 0}, apply_slowly)
    assert applying.wait(60)
    changing = threading.Thread(target=tail.follow, args=({TWO: 0}, apply), daemon=True)
    changing.start()
    changing.join(60)
    assert not changing.is_alive()
    free.set()
    assert followed.wait(60)
    tail.close()


def test_followed_partitions_are_behind_until_they_reach_their_ends(broker: Broker) -> None:
    broker.fill(ONE, 7, 8, 9)
    free, tail = threading.Event(), ChangelogTail(consumers())
    assert not tail.behind()

    def apply(tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        if records[-1].offset == 9:
            assert free.wait(60)

    tail.follow({ONE: 0, TWO: 10}, apply)
    wait_for(lambda: set(tail.behind()) == {ONE})
    free.set()
    wait_for(lambda: not tail.behind())
    tail.close()


def test_broker_error_raises_unavailable_and_closes_consumer(broker: Broker) -> None:
    broker.fill(ONE, 0)
    broker.faults = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    those = consumers()
    with pytest.raises(Unavailable):
        replay({ONE: (0, 1)}, those)
    assert broker.made[0].closed
    assert len(replay({ONE: (0, 1)}, those)[ONE]) == 1
    assert len(broker.made) == 2


async def test_cancelled_read_waits_for_its_thread(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    polling, polled = threading.Event(), threading.Event()

    def consume(*_: object) -> list[mock.Mock]:
        polling.set()
        assert polled.wait(60)
        return [record_message(ONE, StoredRecord(0, 0, b"k", b"v"))]

    monkeypatch.setattr(FakeConsumer, "consume", consume)
    those = consumers()
    reading = asyncio.ensure_future(anext(those.read(ONE, 0, 9)))
    assert await asyncio.to_thread(polling.wait, 60)
    reading.cancel()
    await turn()
    polled.set()
    with suppress(asyncio.CancelledError):
        await reading
    those.close()
    assert broker.made[0].closed, "it was given back"


@pytest.mark.parametrize(("first", "begin", "removed"), [(4, 4, 0), (9, 4, 0), (9, 9, 5), (9, 7, 3)])
async def test_records_removed_before_they_are_read_are_counted(
    broker: Broker, first: int, begin: int, removed: int
) -> None:
    """Other gaps are marks of a stranger's transaction."""
    backend = KafkaBackend(KafkaConnection(("a:1",)), (), 4, 1, 2**20, 2**20)
    broker.fill(ONE, *range(first, 12))
    broker.begins = {ONE: begin}
    found = [record.offset async for records in backend.read(ONE, 4, 12) for record in records]
    assert (found, backend.removed) == ([*range(first, 12)], removed)


# --- single records: near ones in one read, far ones apart, None for expired ones -----------------------------------


async def values(those: Consumers, offsets: Sequence[int]) -> list[bytes | None]:
    return [value async for value in those.values(ONE, offsets)]


OFFSETS = st.sets(st.integers(0, 40).map(lambda number: number * 7))


@settings(max_examples=50)
@given(there=OFFSETS, asked=OFFSETS)
def test_each_offset_yields_its_value_or_none_in_order(there: set[int], asked: set[int]) -> None:
    broker, offsets = Broker(), sorted(asked)
    broker.fill(ONE, *sorted(there))
    broker.ends = {ONE: 300}
    with mock.patch.object(module, "Consumer", broker.consumer):
        found = asyncio.run(values(consumers(), offsets))
    assert found == [b"%d" % offset if offset in there else None for offset in offsets]
    assert bool(broker.made) is bool(asked)


async def test_near_records_share_one_read_unlike_far_ones(broker: Broker) -> None:
    broker.fill(ONE, *range(10_000))
    offsets = [5, 6, 6 + NEAR, 7 + 2 * NEAR, 9000]
    assert await values(consumers(), offsets) == [b"%d" % offset for offset in offsets]
    assert broker.assigned == [5, 7 + 2 * NEAR, 9000]


async def test_unavailable_broker_is_not_a_missing_record(broker: Broker) -> None:
    broker.fill(ONE, 0)
    reading = consumers().values(ONE, [0, 1])
    assert await anext(reading) == b"0"
    broker.faults = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(Unavailable):
        await anext(reading)
    assert broker.made[0].closed
