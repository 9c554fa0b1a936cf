"""What stands before aiokafka: the queue that knows the fate of every record, commits, and the topics' settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    CommitFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from faust.types import TP

from streams.driver.kafka import ConsumerThread
from streams.driver.producer import RecordProducer
from streams.kafka import readers
from streams.kafka.topics import _compare, configuration
from streams.kafka.writer import OVERHEAD, KafkaWriter, Position
from topics import catalog
from topics.errors import Unavailable

DAY_MS = 24 * 3600 * 1000


class Broker:
    """The producer's side of aiokafka: records are acknowledged when the test says so."""

    def __init__(self) -> None:
        self.sent: list[bytes | None] = []
        self.pending: list[tuple[int, asyncio.Future[Any]]] = []
        self.refusals: list[Exception] = []

    async def send(self, topic: str, value: bytes | None, *, key: bytes | None, partition: int) -> asyncio.Future[Any]:
        if self.refusals:
            raise self.refusals.pop(0)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending.append((len(self.sent), future))
        self.sent.append(value)
        return future

    def acknowledge(self, count: int = 1000) -> None:
        for offset, future in self.pending[:count]:
            future.set_result(SimpleNamespace(offset=offset, timestamp=offset * 10))
        del self.pending[:count]

    def fail(self, error: Exception) -> None:
        self.pending.pop(0)[1].set_exception(error)


Scene = Callable[[KafkaWriter, Broker, list[BaseException]], Coroutine[None, None, None]]


async def turn() -> None:
    """Let the loop do what can be done at once."""
    for _ in range(8):
        await asyncio.sleep(0)


def play(scene: Scene, limit: int = 10_000) -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        writer, broker = KafkaWriter(limit, failures.append), Broker()
        writer.start(broker)
        try:
            await scene(writer, broker, failures)
        finally:
            await writer.stop()

    asyncio.run(scenario())


def test_records_are_sent_in_order_and_answered_with_their_place() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        one = writer.append("t", 0, b"k", b"1")
        writer.append_soon("changelog", 0, b"k", b"2")
        three = writer.append("t", 0, b"k", b"3")
        writer.append_soon("changelog", 0, b"k", b"4")
        await turn()
        assert broker.sent == [b"1", b"2", b"3", b"4"]
        assert not one.done()
        broker.acknowledge()
        assert [await one, await three] == [Position(0, 0), Position(2, 20)]
        assert [writer.durable_end(topic, 0) for topic in ("t", "changelog", "other")] == [3, 4, None]
        assert writer.queued_bytes == 0
        assert failures == []

    play(scene)


def test_a_flush_waits_for_every_record_before_it_and_for_none_after() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        await writer.flush()
        for number in range(3):
            writer.append_soon("t", 0, None, b"%d" % number)
        flush = asyncio.create_task(writer.flush())
        await turn()
        writer.append_soon("t", 0, None, b"after")
        broker.acknowledge(2)
        await turn()
        assert not flush.done()
        broker.acknowledge(1)
        await flush
        assert writer.queued_bytes == OVERHEAD + len(b"after")

    play(scene)


def test_a_later_record_does_not_settle_for_an_earlier_one() -> None:
    """Partitions answer in any order: a commit after the flush must not pass the record that is still on its way."""

    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        writer.append_soon("changelog", 0, None, b"slow")
        flush = asyncio.create_task(writer.flush())
        await turn()
        writer.append_soon("changelog", 1, None, b"quick")
        await turn()
        broker.pending.reverse()
        broker.acknowledge(1)
        await turn()
        assert not flush.done()
        broker.acknowledge(1)
        await flush

    play(scene)


def test_a_fault_that_is_not_the_brokers_fails_the_process_and_whoever_waits() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        broker.refusals.append(TypeError("a bug"))
        record = writer.append("t", 0, None, b"1")
        await turn()
        with pytest.raises(Unavailable, match="a bug"):
            await asyncio.wait_for(record, 1)
        assert [str(failure) for failure in failures] == ["a bug"]
        assert writer.queued_bytes == 0

    play(scene)


def test_flushes_end_in_their_order() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        flushes = []
        for number in range(3):
            writer.append_soon("t", 0, None, b"%d" % number)
            flushes.append(asyncio.create_task(writer.flush()))
            await turn()
        for done in range(3):
            broker.acknowledge(1)
            await turn()
            assert [flush.done() for flush in flushes] == [number <= done for number in range(3)]

    play(scene)


def test_a_full_queue_refuses_clients_but_not_the_changelog() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        writer.append("t", 0, b"", bytes(100))
        with pytest.raises(Unavailable, match="200 bytes wait for the broker"):
            writer.append("t", 0, b"", bytes(100))
        writer.append("t", 0, b"", bytes(100), bounded=False)
        writer.append_soon("t", 0, b"", bytes(100))
        await turn()
        broker.acknowledge()
        await turn()
        assert writer.queued_bytes == 0

    play(scene, limit=300)


def test_a_failed_send_that_somebody_waits_for_is_told_to_whoever_waits() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        refused = writer.append("t", 0, None, b"1")
        await turn()
        broker.fail(KafkaTimeoutError())
        with pytest.raises(Unavailable, match="KafkaTimeoutError"):
            await refused
        broker.refusals = [MessageSizeTooLargeError()]
        with pytest.raises(Unavailable, match="MessageSizeTooLarge"):
            await writer.append("t", 0, None, b"2")
        await writer.flush()
        assert failures == []
        assert writer.queued_bytes == 0

    play(scene)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_failed_send_that_nobody_waits_for_stops_the_process_and_every_commit(at_once: bool) -> None:
    """Stock Faust logs it, and commits the offsets of rows that are in no changelog."""

    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        if at_once:
            broker.refusals = [MessageSizeTooLargeError()]
        writer.append_soon("t", 0, None, b"row")
        flush = asyncio.create_task(writer.flush())
        await turn()
        if not at_once:
            broker.fail(KafkaTimeoutError())
        with pytest.raises(KafkaError):
            await flush
        assert len(failures) == 1
        with pytest.raises(KafkaError):
            await writer.flush()

    play(scene)


def test_nobody_waits_for_ever_for_a_writer_that_stopped() -> None:
    async def scene(writer: KafkaWriter, broker: Broker, failures: list[BaseException]) -> None:
        broker.send = lambda *_, **__: asyncio.Event().wait()  # type: ignore[method-assign, assignment]
        waiting = writer.append("t", 0, None, b"1")
        flush = asyncio.create_task(writer.flush())
        await turn()
        await writer.stop()
        with pytest.raises(Unavailable, match="stopped"):
            await waiting
        with pytest.raises(Unavailable, match="stopped"):
            await flush

    play(scene)


# --- commits --------------------------------------------------------------------------------------------------------


class Committing(ConsumerThread):
    """The thread's commit without the thread."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.committed: list[Mapping[Any, int]] = []

    def _ensure_consumer(self) -> Any:
        return self

    def assignment(self) -> set[TP]:
        return {TP("t", 0)}

    async def commit(self, offsets: Mapping[Any, int]) -> None:
        if self.error is not None:
            raise self.error
        self.committed.append(offsets)

    def __repr__(self) -> str:
        return "thread"


@pytest.mark.parametrize("error", [None, CommitFailedError(), KafkaTimeoutError()], ids=repr)
def test_a_commit_that_kafka_refuses_is_no_reason_to_die(error: Exception | None) -> None:
    thread = Committing(error)
    assert asyncio.run(thread._commit({TP("t", 0): 5, TP("t", 1): 7})) is (error is None)
    assert [dict(offsets) for offsets in thread.committed] == ([{TP("t", 0): 5}] if error is None else [])


def test_a_record_without_a_partition_is_refused() -> None:
    producer = object.__new__(RecordProducer)
    producer.writer = KafkaWriter(0, lambda error: None)
    with pytest.raises(NotImplementedError, match="does not name its partition"):
        producer.key_partition("t", b"k")
    with pytest.raises(NotImplementedError, match="does not name its partition"):
        asyncio.run(producer.send("t", b"k", b"v", None))


# --- reading again --------------------------------------------------------------------------------------------------


def test_a_reader_that_cannot_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Away:
        def __init__(self, **settings: object) -> None:
            pass

        async def start(self) -> None:
            calls.append("start")
            raise KafkaConnectionError

        async def stop(self) -> None:
            calls.append("stop")

    monkeypatch.setattr(readers, "AIOKafkaConsumer", Away)

    async def scene() -> None:
        reader = readers.KafkaReader(["localhost:9092"], 2**20, "t")
        with pytest.raises(Unavailable, match="does not give audio back"):
            await anext(reader.read(0, [0]))
        await reader.stop()

    asyncio.run(scene())
    assert calls == ["start", "stop"]


# --- topics ---------------------------------------------------------------------------------------------------------

COMMANDS, CHANGELOG = catalog.topics(DAY_MS)[0], catalog.topics(DAY_MS)[-1]


def test_topics_are_made_with_what_the_catalogue_says() -> None:
    assert configuration(COMMANDS) == {
        "cleanup.policy": "delete",
        "max.message.bytes": str(catalog.record_limit(catalog.DEFAULT_CHUNK_LIMIT)),
        "retention.ms": str(DAY_MS),
    }
    assert configuration(CHANGELOG)["cleanup.policy"] == "compact"
    assert "retention.ms" not in configuration(CHANGELOG)


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, []),
        ({"retention.ms": "-1"}, []),
        ({"retention.ms": str(DAY_MS + 1), "max.message.bytes": str(2**30)}, []),
        ({"retention.ms": "1000"}, ["retention.ms=1000, needed is 86400000"]),
        ({"max.message.bytes": "1000000"}, ["max.message.bytes=1000000, needed is 1114112"]),
        ({"cleanup.policy": "compact"}, ["cleanup.policy=compact, needed is delete"]),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "5"},
            ["cleanup.policy=compact,delete", "retention.ms=5"],
        ),
    ],
    ids=repr,
)
def test_topics_that_are_there_are_compared(changes: dict[str, str], differences: list[str]) -> None:
    found = _compare(COMMANDS, {**configuration(COMMANDS), **changes})
    assert len(found) == len(differences)
    for line, part in zip(found, differences, strict=True):
        assert line.startswith(f"{COMMANDS.name} has {part}")


def test_settings_that_a_broker_does_not_tell_are_not_judged() -> None:
    assert _compare(COMMANDS, {}) == []
