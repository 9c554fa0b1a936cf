"""What a poll brought while a rebalance went on: nothing of it is lost, and nothing is delivered out of order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from aiokafka.errors import KafkaError
from faust.transport.consumer import Consumer
from faust.types import TP

from streams.driver.consumer import BatchConsumer
from streams.driver.deliveries import Deliveries
from topics.catalog import CHANGELOG, COMMANDS

TP0, LOG_TP = TP(COMMANDS, 0), TP(CHANGELOG, 0)
SIZE = 3
LENGTH = 12


class Polling(BatchConsumer):
    """A consumer of one partition with LENGTH records, SIZE a poll; `during` happens while polls are in flight."""

    pace = 0.0

    def __init__(self, during: Mapping[int, Callable[[Polling], None]], tp: TP = TP0) -> None:
        self.tp = tp
        self.during = during
        self.polls = 0
        self.at = 0
        self.delivered: list[int] = []
        self.faults: list[Exception] = []
        self.flow_active = True
        self.can_resume_flow = asyncio.Event()
        self._deliveries = defaultdict(Deliveries)
        self._dropped: dict[TP, int] = {}
        self._read_offset: defaultdict[TP, int | None] = defaultdict(lambda: None)
        self._committed_offset: defaultdict[TP, int | None] = defaultdict(lambda: None)
        self._buffered_partitions: set[TP] = set()
        self._active_partitions: set[TP] = {tp}
        self._paused_partitions: set[TP] = set()
        self._held = False
        self._beyond: dict[TP, int] = {}
        self.missing: set[int] = set()
        tables = SimpleNamespace(changelog_topics={CHANGELOG})
        self.app = SimpleNamespace(consumer_generation_id=1, tables=tables, should_stop=False, in_recovery=False)

    @property
    def should_stop(self) -> bool:
        return self.polls == 20

    def assignment(self) -> set[TP]:
        return {TP0, LOG_TP}

    async def wait(self, *events: Any, timeout: Any = None) -> Any:
        self.flow_active = True

    async def position(self, tp: TP) -> int | None:
        if self.faults:
            raise self.faults.pop()
        return self.at

    async def _seek(self, partition: TP, offset: int) -> None:
        assert partition == self.tp
        self.at = offset

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        return dict.fromkeys(partitions, 2)

    async def seek_to_committed(self) -> Mapping[TP, Any]:
        """As aiokafka: where nothing is committed nothing is sought."""
        return {TP0: None, LOG_TP: None}

    async def _wait_next_records(self, timeout: float) -> tuple[Any, Any]:
        stop = min(LENGTH, self.at + SIZE)
        offsets = [offset for offset in range(self.at, stop) if offset not in self.missing]
        batch = [SimpleNamespace(offset=offset, timestamp=0, key=b"", value=b"") for offset in offsets]
        self.at = stop
        self.polls += 1
        if self.polls in self.during:
            self.during[self.polls](self)
        return ({self.tp: batch} if batch else {}), self._active_partitions

    async def deliver(self, message: Any) -> None:
        batch = [message] if self.tp == LOG_TP else message.value
        self.delivered.extend(record.offset for record in batch)

    def __repr__(self) -> str:
        return "polling"


Polling.__abstractmethods__ = frozenset()


def drained(during: Mapping[int, Callable[[Polling], None]], tp: TP = TP0) -> list[int]:
    async def scene() -> list[int]:
        consumer = Polling(during, tp)
        consumer.callback = consumer.deliver
        await consumer._drain_messages(SimpleNamespace(should_stop=False))
        return consumer.delivered

    return asyncio.run(scene())


def stop_flow(consumer: Polling) -> None:
    consumer.flow_active = False


def rebalance(committed: int) -> Callable[[Polling], None]:
    """The flow has stopped and resumed, and the partition is sought back, all while the poll was in flight."""

    def happens(consumer: Polling) -> None:
        consumer.app.consumer_generation_id += 1
        consumer.at = committed
        consumer._read_offset[TP0] = committed

    return happens


def test_what_is_polled_while_the_flow_is_stopped_comes_again() -> None:
    assert drained({2: stop_flow, 4: stop_flow}) == list(range(LENGTH))


def test_a_poll_from_before_a_rebalance_does_not_hide_what_lies_before_it() -> None:
    assert drained({3: rebalance(1)}) == [*range(6), *range(1, LENGTH)]


@pytest.mark.parametrize("tp", [TP0, LOG_TP])
def test_a_poll_that_ends_after_a_rebalance_and_its_seek_is_not_lost(tp: TP) -> None:
    """Recovery of a table would wait for ever for what it brought of the changelog."""

    def regain(consumer: Polling) -> None:
        consumer.app.consumer_generation_id += 1

    assert drained({2: regain, 3: regain}, tp) == list(range(LENGTH))


def test_without_a_position_to_go_back_to_nothing_before_it_is_skipped() -> None:
    def forget(consumer: Polling) -> None:
        stop_flow(consumer)
        consumer._read_offset[TP0] = None
        consumer.at = 1

    assert drained({2: forget}) == [*range(3), *range(1, LENGTH)]


def test_nothing_is_polled_before_what_was_dropped_is_sought() -> None:
    def hide(consumer: Polling) -> None:
        stop_flow(consumer)
        consumer._read_offset[TP0] = None
        consumer.faults = [KafkaError("the broker is away"), KafkaError("still")]

    assert drained({2: hide}) == list(range(LENGTH))


def test_a_seek_too_far_is_noticed_each_time() -> None:
    def far(consumer: Polling) -> None:
        consumer.at = 8

    assert drained({1: far, 3: far}) == list(range(LENGTH))


def test_what_is_missing_in_the_log_is_passed_over() -> None:
    def trim(consumer: Polling) -> None:
        consumer.missing = {3, 4}

    assert drained({1: trim}) == [0, 1, 2, *range(5, LENGTH)]


def test_streams_are_resumed_by_whoever_knows_that_their_queues_stay() -> None:
    """Faust resumes them, seeks, and then clears the queues of the agents: what was delivered meanwhile was lost."""
    consumer, both = Polling({}), {TP0, LOG_TP}
    consumer.pause_partitions(both)
    consumer.resume_partitions(both)
    consumer.on_buffer_full(TP0)
    consumer.on_buffer_drop(TP0)
    assert consumer._active_partitions == {LOG_TP}
    held = [consumer._held]
    consumer.resume_streams({COMMANDS})
    assert consumer._active_partitions == both
    assert [*held, consumer._held] == [True, False]
    consumer.on_buffer_full(TP0)
    assert consumer._active_partitions == {LOG_TP}
    consumer.on_buffer_drop(TP0)
    assert consumer._active_partitions == both


def test_what_is_polled_of_a_partition_that_is_held_waits_also_when_its_queue_was_full() -> None:
    """Faust clears the queues before it ends a rebalance: what was delivered by then is lost."""
    held = []

    def resume(consumer: Polling) -> None:
        held.extend(consumer.delivered)
        consumer.resume_streams({COMMANDS})

    def hold(consumer: Polling) -> None:
        consumer.on_buffer_full(TP0)
        consumer.pause_partitions({TP0})
        asyncio.get_running_loop().call_later(0.05, resume, consumer)

    assert drained({2: hold}) == list(range(LENGTH))
    assert held == [0, 1, 2]


def test_a_partition_without_a_committed_offset_begins_again_at_its_first_record() -> None:
    """Its deliveries before the rebalance count for nothing, whether their agent ended or not."""

    async def scene() -> None:
        consumer = Polling({})
        consumer.at = consumer._read_offset[TP0] = 7
        await consumer.perform_seek()
        assert consumer.at == consumer._read_offset[TP0] == consumer.start_offset(TP0) == 2

    async def stock() -> None:
        consumer = Polling({})
        consumer.at = 7
        with mock.patch.object(Polling, "perform_seek", Consumer.perform_seek):
            await consumer.perform_seek()
        assert consumer.at == 7

    asyncio.run(scene())
    asyncio.run(stock())
