"""The queue before aiokafka's producer, which knows the fate of every record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError

from streams.kafka.writer import OVERHEAD, KafkaWriter
from streams.log import Ack
from topics.catalog import TopicPartition
from topics.errors import Unavailable


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
        assert [await one, await three] == [Ack(0, 0), Ack(2, 20)]
        assert [writer.end(TopicPartition(topic, 0)) for topic in ("t", "changelog", "other")] == [3, 4, None]
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
