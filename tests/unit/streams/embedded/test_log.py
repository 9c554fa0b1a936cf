"""The log: appended records are read back in order, once durable, and after a restart; and its binary format."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from rocksdict import Options, Rdict

from streams.disk import DatabaseFailed
from streams.embedded import compaction, layout
from streams.embedded.embedded_backend import EmbeddedBackend
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogDamaged, LogError
from streams.embedded.log_store import MIB
from streams.log import StoredRecord
from tests.unit.streams.appending import append_soon
from tests.unit.streams.clocks import HandClock
from tests.unit.streams.embedded.conftest import FailingRocks, Reopen, compacted
from topics.catalog import TopicPartition
from topics.errors import Unavailable

T0 = TopicPartition("t", 0)
ALL = 1 << 30


async def fill(log: EmbeddedLog, count: int, size: int = 10) -> None:
    for number in range(count):
        append_soon(log, "t", 0, b"k%d" % number, bytes([number % 256]) * size)
    await log.flush()


def offsets(log: EmbeddedLog) -> list[int]:
    return [record.offset for record in log.read(T0, 0, ALL, ALL)]


async def test_records_are_visible_only_once_durable(log: EmbeddedLog) -> None:
    future = log.append("t", 0, b"k", b"v")
    assert (log.end(T0), log.get(T0, 0)) == (0, None)
    assert log.queued_bytes > 0
    await future
    assert (log.end(T0), log.queued_bytes) == (1, 0)


async def test_reads_are_bounded_and_omit_trimmed_records(log: EmbeddedLog) -> None:
    await fill(log, 10, size=98)
    assert len(log.read(T0, 0, ALL, 350)) == 3
    assert len(log.read(T0, 0, ALL, 1)) == 1, "at least one"
    log.trim(T0, 2)
    found = await EmbeddedBackend(log, (), 0, time.time).stretch(T0, [1, 3, 5, 19], ALL)
    assert [record.offset for record in found] == [3, 5]


async def test_newest_records_are_in_memory(reopen: Reopen, tmp_path: Path) -> None:
    """The write buffers of the database have them, for a fold that reads them again."""
    log = await reopen()
    for _ in range(40):
        await log.append("t", 0, None, bytes(MIB))
    assert not [*(tmp_path / "data" / "log").glob("*.sst"), *(tmp_path / "data" / "log").glob("*.blob")]
    assert offsets(log) == list(range(40))


async def append_one(log: EmbeddedLog) -> tuple[int, int]:
    return await log.append("t", 0, None, b"v")


async def test_log_time_follows_clock_except_small_steps_back(reopen: Reopen, clock: HandClock) -> None:
    log = await reopen()
    assert await append_one(log) == (0, 1_000_000)
    clock.now = 940.0
    assert await append_one(log) == (1, 1_000_000)
    assert await append_one(await reopen()) == (2, 1_000_000)
    clock.now = 2000.0
    log = await reopen()
    assert await append_one(log) == (3, 2_000_000)
    # Also if everything is trimmed.
    log.trim(T0, 4)
    await log.flush()
    clock.now = 1999.0
    log = await reopen()
    assert (log.earliest(T0), log.end(T0)) == (4, 4)
    assert await append_one(log) == (4, 2_000_000)
    # It was ahead, and is right now.
    clock.now = 1000.0
    assert await append_one(log) == (5, 1_000_000)


@pytest.mark.parametrize(("jump", "direction"), [(86_400.0, "ahead"), (-86_400.0, "back")])
async def test_jump_of_clock_is_reported_once_and_followed(
    reopen: Reopen, clock: HandClock, caplog: pytest.LogCaptureFixture, jump: float, direction: str
) -> None:
    steady = HandClock()
    clock.now = 1_000_000.0
    log = await reopen(steady=steady)
    await append_one(log)
    for _ in range(3):  # The machine slept, and the clock was set by half a minute.
        steady.now += 3600
        clock.now += 3630
        await append_one(log)
    assert "jumped" not in caplog.text
    clock.now += jump
    assert (await append_one(log))[1] == int(clock.now * 1000)
    await append_one(log)
    assert caplog.text.count(f"the clock jumped {direction} by 86400 s") == 1
    clock.now -= jump
    assert (await append_one(log))[1] == int(clock.now * 1000)
    assert caplog.text.count("the clock jumped") == 2


async def test_start_with_clock_that_was_wrong_is_reported(
    reopen: Reopen, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await append_one(await reopen())
    clock.now += 86_400
    await append_one(await reopen())
    assert "newest record is 86400 s old" in caplog.text
    clock.now -= 86_400
    assert await append_one(await reopen()) == (2, 1_000_000)
    assert "the clock is 86400 s behind the log's newest record" in caplog.text


@pytest.mark.parametrize(("missing", "hole"), [(0, range(0)), (4, range(0)), (9, range(0)), (7, range(2, 5))], ids=str)
async def test_missing_record_is_damage(reopen: Reopen, missing: int, hole: range) -> None:
    log = await reopen()
    await fill(log, 10)
    if hole:
        log.make_hole(T0, hole.start, hole.stop)
        await log.flush()
        assert offsets(log) == [0, 1, 5, 6, 7, 8, 9]
        assert (log.earliest(T0), log.get(T0, 3)) == (0, None)
    log.store._db.rocks.delete(layout.record_key(1, 0, missing))
    with pytest.raises(LogDamaged, match=f"record {missing} of t/0 is missing"):
        log.read(T0, 0, ALL, ALL)
    with pytest.raises(LogDamaged, match="is missing"):
        log.get(T0, missing)


async def test_durable_records_are_delivered_per_partition(log: EmbeddedLog) -> None:
    """Records of a partition in order, once readable; other topics are skipped."""
    log.declare("other", 1)
    delivered: list[tuple[TopicPartition, list[StoredRecord]]] = []

    def take(tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        assert log.end(tp) == records[-1].offset + 1
        delivered.append((tp, list(records)))

    log.deliver({"t"}, take)
    append_soon(log, "other", 0, b"k", b"v")
    append_soon(log, "t", 1, b"k", b"v")
    await fill(log, 3)
    assert [(tp.partition, [record.offset for record in records]) for tp, records in delivered] == [
        (1, [0]),
        (0, [0, 1, 2]),
    ]
    assert delivered[1] == (T0, log.read(T0, 0, ALL, ALL))
    assert log._writer._number == 1
    await fill(log, 1)
    assert [record.offset for record in delivered[-1][1]] == [3]
    assert len(delivered) == 3


def test_redeclaring_with_other_partition_count_fails(log: EmbeddedLog) -> None:
    log.declare("t", 2, compact=True)
    with pytest.raises(LogError, match=r"topic t has 2 partitions .* 3 are asked for: .*EARSHOT_PARTITIONS=2,"):
        log.declare("t", 3)
    with pytest.raises(LogError, match="no partition 2 of topic t"):
        log.end(TopicPartition("t", 2))


async def test_full_queue_rejects_only_bounded_appends(reopen: Reopen) -> None:
    log = await reopen(queue_bytes=2000)
    first = log.append("t", 0, None, bytes(1500))
    with pytest.raises(Unavailable, match="queue is full"):
        log.append("t", 0, None, bytes(1500))
    second = log.append("t", 0, None, b"result", bounded=False)
    append_soon(log, "t", 0, None, b"row")
    assert [ack.offset for ack in await asyncio.gather(first, second)] == [2, 0]
    await log.append("t", 0, None, bytes(1500))
    assert log.end(T0) == 4


def test_log_that_cannot_be_used_is_rejected(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path / "log"), Options(raw_mode=True))
    db.put(layout.FORMAT_KEY, b"2")
    db.close()
    with pytest.raises(LogError, match="has format 2, this version reads format 1"):
        EmbeddedLog.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot be used"):
        EmbeddedLog.open(tmp_path / "file")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("IO error: While open a file for random read: /data/log/000012.blob: Too many open files", DatabaseFailed),
        ("IO error: While pread offset 1 len 9: /data/log/000012.sst: Input/output error", DatabaseFailed),
        ("Too many open files (os error 24)", DatabaseFailed),
        ("IO error: No such file or directory: While open a file for random read: /data/log/000012.blob", LogDamaged),
        ("Corruption: block checksum mismatch in /data/log/000012.sst", LogDamaged),
    ],
)
async def test_read_errors_are_transient_or_damage(reopen: Reopen, said: str, error: type[Exception]) -> None:
    log = await reopen()
    await fill(log, 3)
    database: Any = log.store._db
    rocks = database.rocks
    reads: dict[str, Callable[[], object]] = {"get": lambda: log.get(T0, 1), "iter": lambda: log.read(T0, 0, ALL, ALL)}
    for method, read in reads.items():
        database.rocks = FailingRocks(rocks, method, said, times=1)
        with pytest.raises(error) as caught:
            read()
        assert isinstance(caught.value, Unavailable) == (error is DatabaseFailed)
        assert read()
    if error is DatabaseFailed:
        assert "/data" not in str(caught.value)  # Clients may see the message.


async def test_closed_log_rejects_calls(log: EmbeddedLog) -> None:
    last = log.append("t", 0, None, b"last")
    await log.close()
    await log.close()
    assert (await last).offset == 0
    with pytest.raises(LogError, match="closed"):
        log.append("t", 0, None, b"late")
    with pytest.raises(LogError, match="closed"):
        await log.flush()


# --- binary format --------------------------------------------------------------------------------------------------

places = st.integers(0, layout.MAX_OFFSET)


@given(places, places)
def test_record_keys_sort_by_offset(one: int, two: int) -> None:
    keys = [layout.record_key(1, 2, offset) for offset in (one, two)]
    assert (keys[0] < keys[1]) == (one < two)
    assert layout.record_offset(keys[0]) == one
    # Partitions do not overlap.
    assert layout.record_key(1, 2, layout.MAX_OFFSET) < layout.record_key(1, 3, 0)
    assert layout.record_key(1, 2**32 - 1, layout.MAX_OFFSET) < layout.record_key(2, 0, 0)


NAME = b"name"


@pytest.mark.parametrize(
    ("data", "group"),
    [
        (b"", 0),
        (b"x" * 50, 0),
        (b"x" + layout.pack_marker(4, NAME) + b"y" + layout.pack_marker(3, NAME), 4),
        (layout.pack_marker(4, NAME)[:-1], 0),
        (layout.pack_marker(9, NAME)[:-1] + b"\0" + layout.pack_marker(2, NAME), 2),
        (layout.pack_marker(9, b"another") + layout.pack_marker(2, NAME), 2),
    ],
)
def test_last_intact_marker_is_found(data: bytes, group: int) -> None:
    assert layout.last_marker(data, NAME) == group


# --- random appends, reads, trims, compactions, commits and restarts, against lists and dicts ------------------------

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

    @initialize(recent_keys=st.sampled_from([0, 1, 100]), map_keys=st.integers(1, 6), slice_=st.integers(1, 7))
    def begin(self, recent_keys: int, map_keys: int, slice_: int) -> None:
        self.patch.setattr(compaction, "RECENT_KEYS", recent_keys)
        self.patch.setattr(compaction, "MAP_KEYS", map_keys)
        self.patch.setattr(compaction, "SLICE", slice_)
        self.open()

    def open(self) -> None:
        self.log = EmbeddedLog.open(Path(self.directory.name), sync=False, clock=lambda: self.now / 1000)
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

    @rule(tp=partitions.filter(lambda tp: tp.topic == "audio"), since=st.integers(0, 20), length=st.integers(1, 10))
    def make_hole(self, tp: TopicPartition, since: int, length: int) -> None:
        # A needed record follows each hole.
        since, before = max(since, self.earliest[tp]), min(since + length, self.ends[tp] - 1)
        if since < before:

            async def scenario() -> None:
                self.log.make_hole(tp, since, before)
                await self.log.flush()

            self.runner.run(scenario())
            self.model[tp] = [record for record in self.model[tp] if not since <= record.offset < before]

    @rule()
    def compact(self) -> None:
        tp = TopicPartition("rows", 0)
        before, left = self.log.read(tp, 0, ALL, ALL), compacted(self.model[tp])
        assert self.log.compact(tp) <= len(self.model[tp]) - len(left)
        assert self.log.read(tp, 0, ALL, ALL) == left == compacted(before)
        assert self.log.dirty(tp)[0] == 0
        self.model[tp] = left

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.log.close())
        self.open()

    @rule(tp=partitions, offset=st.integers(0, 30), count=st.integers(1, 8))
    def read(self, tp: TopicPartition, offset: int, count: int) -> None:
        expected = [record for record in self.log.read(tp, 0, ALL, ALL) if record.offset >= offset]
        assert self.log.read(tp, offset, count, ALL) == expected[:count]
        first = self.log.get(tp, offset)
        assert first == (expected[0] if expected and expected[0].offset == offset else None)

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        for tp, records in self.model.items():
            there = self.log.read(tp, 0, ALL, ALL)
            # A compacted partition loses superseded records at any time.
            needed = compacted(records) if tp.topic == "rows" else records
            assert [record for record in records if record in there] == there
            assert [record for record in there if record in needed] == needed
            assert (self.log.earliest(tp), self.log.end(tp)) == (self.earliest[tp], self.ends[tp])

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.runner.run(self.log.close())
        self.runner.close()
        self.directory.cleanup()
        self.patch.undo()


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
