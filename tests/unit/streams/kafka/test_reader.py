"""Reading single records of Kafka again: near ones in one go, far ones apart, None for what retention removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.kafka.reader import NEAR, KafkaReader
from streams.log import StoredRecord
from topics.catalog import TopicPartition
from topics.errors import Unavailable

TOPIC = "t"


class Log:
    """`Consumers` of one topic: some offsets hold records, which come a few at a time."""

    def __init__(self, offsets: set[int], at_once: int = 3) -> None:
        self.offsets = offsets
        self.at_once = at_once
        self.read_ranges: list[tuple[TopicPartition, int, int]] = []
        self.open = 0
        self.fault: Exception | None = None

    async def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[list[StoredRecord], None]:
        self.read_ranges.append((tp, start, stop))
        self.open += 1
        try:
            there = [offset for offset in sorted(self.offsets) if start <= offset < stop]
            for first in range(0, len(there), self.at_once):
                await asyncio.sleep(0)
                yield [StoredRecord(offset, 0, b"k", b"%d" % offset) for offset in there[first : first + self.at_once]]
            if self.fault is not None:
                raise self.fault
        finally:
            self.open -= 1


def reader(log: Any) -> KafkaReader:
    return KafkaReader(log, TOPIC)


def read(log: Log, offsets: list[int]) -> list[bytes | None]:
    async def gather() -> list[bytes | None]:
        return [value async for value in reader(log).read(2, offsets)]

    return asyncio.run(gather())


@settings(deadline=None)
@given(
    there=st.sets(st.integers(0, 40).map(lambda number: number * 7)),
    asked=st.sets(st.integers(0, 40).map(lambda number: number * 7)),
    at_once=st.integers(1, 5),
)
def test_each_offset_has_its_value_or_none_in_order(there: set[int], asked: set[int], at_once: int) -> None:
    log = Log(there, at_once)
    offsets = sorted(asked)
    assert read(log, offsets) == [b"%d" % offset if offset in there else None for offset in offsets]
    assert log.open == 0
    assert asked or not log.read_ranges


def test_near_records_are_read_in_one_go_and_far_ones_are_jumped_to() -> None:
    log = Log(set(range(10_000)))
    offsets = [5, 6, 6 + NEAR, 7 + 2 * NEAR, 9000]
    assert read(log, offsets) == [b"%d" % offset for offset in offsets]
    tp = TopicPartition(TOPIC, 2)
    assert log.read_ranges == [(tp, 5, 7 + NEAR), (tp, 7 + 2 * NEAR, 8 + 2 * NEAR), (tp, 9000, 9001)]


async def test_brokers_that_do_not_answer_are_no_missing_records() -> None:
    log = Log({0})
    log.fault = Unavailable("Kafka does not answer")
    reading = reader(log).read(0, [0, 1])
    assert await anext(reading) == b"0"
    with pytest.raises(Unavailable):
        await anext(reading)
    assert log.open == 0


async def test_a_reading_that_is_given_up_gives_its_consumer_back() -> None:
    log = Log(set(range(100)))
    reading = reader(log).read(0, [0, 1, 2, 50])
    assert await anext(reading) == b"0"
    assert log.open == 1
    await reading.aclose()
    assert log.open == 0


async def test_readings_go_on_side_by_side() -> None:
    """One consumer behind a lock read the audio of all streams one by one after a takeover."""
    log = Log(set(range(100)))
    first, second = (reader(log).read(0, [0, 1]) for _ in range(2))
    assert [await anext(first), await anext(second)] == [b"0", b"0"]
    assert log.open == 2
    await first.aclose()
    await second.aclose()
