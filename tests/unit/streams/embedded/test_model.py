"""Any sequence of appends, reads, trims, compactions, commits and restarts, against lists and dicts."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.embedded import compaction
from streams.embedded.log import EmbeddedLog
from streams.log import StoredRecord
from tests.unit.streams.embedded.naive import compacted
from topics.catalog import TopicPartition

ALL = 1 << 30
partitions = st.sampled_from([TopicPartition("audio", 0), TopicPartition("audio", 1), TopicPartition("rows", 0)])
keys = st.none() | st.sampled_from([b"", b"a", b"b"])
values = st.none() | st.binary(max_size=5) | st.just(bytes(5000))


class LogMachine(RuleBasedStateMachine):
    """The log under test beside its model: its records by partition."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(compaction, "PAUSE", 0)
        self.directory = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.now = 5
        self.model: dict[TopicPartition, list[StoredRecord]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.earliest: dict[TopicPartition, int] = {}
        self.commits: dict[tuple[str, TopicPartition], int] = {}

    @initialize(cache_bytes=st.sampled_from([0, 1500, 1 << 20]))
    def open(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self.log = EmbeddedLog.open(
            Path(self.directory.name), sync=False, cache_bytes=cache_bytes, clock=lambda: self.now / 1000
        )
        self.log.declare("audio", 2)
        self.log.declare("rows", 1, compact=True)
        for topic, count in self.log.topics().items():
            for number in range(count):
                tp = TopicPartition(topic, number)
                self.model.setdefault(tp, [])
                self.ends.setdefault(tp, 0)
                self.earliest.setdefault(tp, 0)

    @rule(records=st.lists(st.tuples(partitions, keys, values), max_size=6), passed=st.integers(0, 10))
    def append(self, records: list[tuple[TopicPartition, bytes | None, bytes | None]], passed: int) -> None:
        self.now += passed

        async def scenario() -> list[tuple[int, int]]:
            return await asyncio.gather(*(self.log.append(*tp, key, value) for tp, key, value in records))

        acks = self.runner.run(scenario())
        for (tp, key, value), ack in zip(records, acks, strict=True):
            assert ack == (self.ends[tp], self.now)
            self.model[tp].append(StoredRecord(*ack, key, value))
            self.ends[tp] += 1

    @rule(tp=partitions, before=st.integers(0, 30))
    def trim(self, tp: TopicPartition, before: int) -> None:
        async def scenario() -> None:
            self.log.trim(tp, before)
            await self.log.flush()

        self.runner.run(scenario())
        self.earliest[tp] = max(self.earliest[tp], min(before, self.ends[tp]))
        self.model[tp] = [record for record in self.model[tp] if record.offset >= self.earliest[tp]]

    @rule()
    def compact(self) -> None:
        tp = TopicPartition("rows", 0)
        left = compacted(self.model[tp])
        assert self.log.compact(tp) == len(self.model[tp]) - len(left)
        self.model[tp] = left

    @rule(tp=partitions, group=st.sampled_from(["g", "h"]), offset=st.integers(0, 9))
    def commit(self, tp: TopicPartition, group: str, offset: int) -> None:
        async def scenario() -> None:
            await self.log.commit(group, {tp: offset})

        self.runner.run(scenario())
        self.commits[group, tp] = offset

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.log.close())
        self.open(self.cache_bytes)

    @rule(tp=partitions, offset=st.integers(0, 30), count=st.integers(1, 8))
    def read(self, tp: TopicPartition, offset: int, count: int) -> None:
        expected = [record for record in self.model[tp] if record.offset >= offset]
        assert self.log.read(tp, offset, count, ALL) == expected[:count]
        first = self.log.get(tp, offset)
        assert first == (expected[0] if expected and expected[0].offset == offset else None)

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        for tp, records in self.model.items():
            assert self.log.read(tp, 0, ALL, ALL) == records
            assert (self.log.earliest(tp), self.log.end(tp)) == (self.earliest[tp], self.ends[tp])
            for group in ("g", "h"):
                assert self.log.committed(group, tp) == self.commits.get((group, tp))

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.runner.run(self.log.close())
        self.runner.close()
        self.directory.cleanup()
        self.patch.undo()


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
