"""What is committed while records are in work, when an agent fails, and before the changelog is out.

Each fault is shown first on stock Faust over the same log, then absent from ours.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import ImproperlyConfigured
from faust.transport.producer import ProducerBuffer
from faust.types import TP

from streams.driver.application import Application
from streams.driver.consumer import BatchConsumer, BatchSchema
from streams.driver.deliveries import Deliveries
from streams.driver.guarantee import refuse_exactly_once
from streams.embedded.log import EmbeddedLog
from tests.unit.streams.driver import stock
from tests.unit.streams.driver.applications import GROUP, often, open_log, options, started
from tests.waiting import until
from topics.catalog import RESULTS

FAILING, HELD = TP(RESULTS, 0), TP(RESULTS, 1)


async def append(log: EmbeddedLog, tp: TP, *values: bytes) -> None:
    for value in values:
        await log.append(tp.topic, tp.partition, None, value)


def ours(directory: Path, log: EmbeddedLog, failures: list[BaseException]) -> Application:
    with often():
        app = Application(options(directory), failures.append, log)
    app.on_rebalance(lambda: None, lambda: app.consumer.resume_streams({RESULTS}))
    return app


# --- stock Faust ----------------------------------------------------------------------------------------------------


def test_stock_faust_commits_what_an_agent_raised_on_and_what_is_in_work(tmp_path: Path) -> None:
    async def scene() -> list[int | None]:
        log, held, seen = open_log(tmp_path), asyncio.Event(), []

        async def agent(stream: Any) -> None:
            async for value in stream:
                seen.append(value)
                if value == b"boom":
                    raise RuntimeError("boom")
                if value == b"hold":
                    await held.wait()

        await append(log, FAILING, b"ok", b"boom", b"ok")
        await append(log, HELD, b"hold", b"later", b"later")
        app = stock.application(str(tmp_path), log, RESULTS, agent, lanes=2)
        async with started(app, log):
            await until(lambda: log.committed("stock", FAILING) == 3 and log.committed("stock", HELD) == 3)
            assert seen.count(b"boom") == 1
            held.set()
            return [log.committed("stock", tp) for tp in (FAILING, HELD)]

    # "boom" (1) will never be seen again, and a crash now loses "hold" (0).
    assert asyncio.run(scene()) == [3, 3]


def test_stock_flush_returns_before_everything_is_out() -> None:
    """A producer that takes longer than 0.1 s for a record: the buffer says that it is flushed, and is not."""

    async def scene() -> int:
        buffer = ProducerBuffer()
        buffer.app = SimpleNamespace(conf=SimpleNamespace(producer_threaded=False))
        buffer._started.set()
        for number in range(3):
            buffer.pending.put_nowait(number)
        await buffer.flush()
        return int(buffer.size)

    assert asyncio.run(scene()) == 3


def has_seen(seen: list[bytes], count: int) -> bool:
    return len(seen) == count


# --- ours -----------------------------------------------------------------------------------------------------------


def test_nothing_is_committed_above_a_batch_in_work(tmp_path: Path) -> None:
    async def scene() -> None:
        log, held, seen = open_log(tmp_path), asyncio.Event(), []
        failures: list[BaseException] = []
        app = ours(tmp_path, log, failures)

        async def agent(stream: Any) -> None:
            async for event in stream.events():
                values = [record.value for record in event.value]
                seen.extend(values)
                if b"hold" in values:
                    await held.wait()
                app.consumer.finish(event.message)

        # Two lanes, so that later batches are finished while the first is held back.
        app.agent(app.topic(RESULTS, schema=BatchSchema()), name="agent", concurrency=2)(agent)
        await append(log, HELD, b"ok")
        async with started(app, log):
            await until(lambda: log.committed(GROUP, HELD) == 1)
            await append(log, HELD, b"hold")
            for number in range(2, 6):
                await until(partial(has_seen, seen, number))
                await append(log, HELD, b"later")
            await append(log, FAILING, b"other partition")
            await until(lambda: log.committed(GROUP, FAILING) == 1)
            assert await app.consumer.force_commit() is False
            assert log.committed(GROUP, HELD) == 1
            assert app.consumer.working_since() is not None
            held.set()
            await until(lambda: log.committed(GROUP, HELD) == 6)
        assert failures == []

    asyncio.run(scene())


def test_a_batch_whose_handler_raised_stays_uncommitted_and_stops_the_process(tmp_path: Path) -> None:
    async def scene() -> None:
        log = open_log(tmp_path)
        failures: list[BaseException] = []
        app = ours(tmp_path, log, failures)

        async def handle(partition: int, records: Any) -> None:
            if records[0].value == b"boom":
                raise RuntimeError("boom")

        app.consume(RESULTS, "agent", handle)
        async with started(app, log):
            await append(log, FAILING, b"ok")
            await until(lambda: log.committed(GROUP, FAILING) == 1)
            await append(log, FAILING, b"boom")
            await until(lambda: failures)
            await append(log, FAILING, b"ok")
            await app.stop()
            assert log.committed(GROUP, FAILING) == 1
        assert str(failures[0]) == "boom"

    asyncio.run(scene())


class Stub(BatchConsumer):
    """A consumer without a transport: commits are noted."""

    def __init__(self, flushed: asyncio.Event) -> None:
        self.done: list[str] = []
        self.committed: dict[TP, int] = {}
        self._deliveries = defaultdict(Deliveries)
        self._committed_offset: defaultdict[TP, int | None] = defaultdict(lambda: None)
        self.app = SimpleNamespace(
            producer=SimpleNamespace(flush=flushed.wait), persist_offsets=lambda: self.done.append("persisted")
        )
        self.lost: set[TP] = set()

    def assignment(self) -> set[TP]:
        return {HELD, FAILING} - self.lost

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        self.done.append("committed")
        self.committed.update(offsets)
        return True

    def __repr__(self) -> str:
        return "stub"


# Without this Python would insist on the methods of a transport, none of which is called.
Stub.__abstractmethods__ = frozenset()


def test_a_commit_waits_until_everything_is_flushed() -> None:
    async def scene() -> None:
        flushed = asyncio.Event()
        consumer = Stub(flushed)
        consumer._deliveries[HELD].add(0, 5)
        consumer._deliveries[HELD].finish(0, 5)
        commit = asyncio.create_task(consumer.force_commit())
        for _ in range(5):
            await asyncio.sleep(0)
        assert consumer.done == []
        flushed.set()
        assert await commit
        assert consumer.done == ["persisted", "committed"]
        assert consumer.committed == {HELD: 5}
        assert consumer.committed_offset(HELD) == 5
        assert await consumer.force_commit() is False

    asyncio.run(scene())


def test_a_partition_that_left_during_the_flush_is_not_committed() -> None:
    async def scene() -> None:
        flushed = asyncio.Event()
        consumer = Stub(flushed)
        for tp in (HELD, FAILING):
            consumer._deliveries[tp].add(0, 5)
            consumer._deliveries[tp].finish(0, 5)
        commit = asyncio.create_task(consumer.force_commit())
        await asyncio.sleep(0)
        consumer.lost.add(HELD)
        flushed.set()
        assert await commit
        assert consumer.committed == {FAILING: 5}

    asyncio.run(scene())


def test_a_commit_that_was_refused_is_tried_again() -> None:
    async def scene() -> None:
        flushed = asyncio.Event()
        flushed.set()
        consumer = Stub(flushed)
        consumer._deliveries[HELD].add(0, 5)
        consumer._deliveries[HELD].finish(0, 5)
        refused = SimpleNamespace(_commit=consumer._commit)

        async def refuse(offsets: Mapping[TP, int]) -> bool:
            return False

        consumer._commit = refuse  # type: ignore[method-assign]
        assert await consumer.force_commit() is False
        consumer._commit = refused._commit  # type: ignore[method-assign]
        assert await consumer.force_commit() is True

    asyncio.run(scene())


def test_a_batch_of_an_earlier_assignment_counts_for_nothing() -> None:
    consumer = Stub(asyncio.Event())
    consumer.app.consumer_generation_id = 3
    consumer._deliveries[HELD].add(0, 5)
    consumer.finish(SimpleNamespace(tp=HELD, offset=0, generation_id=2, value=[SimpleNamespace(offset=4)]))
    assert consumer._committable() == {}
    consumer.finish(SimpleNamespace(tp=HELD, offset=0, generation_id=3, value=[SimpleNamespace(offset=4)]))
    assert consumer._committable() == {HELD: 5}


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_exactly_once_is_refused_by_name(guarantee: str) -> None:
    app = SimpleNamespace(conf=SimpleNamespace(processing_guarantee=SimpleNamespace(value=guarantee)))
    if guarantee == "at_least_once":
        refuse_exactly_once(app)
        return
    with pytest.raises(ImproperlyConfigured, match="exactly_once loses and repeats table updates"):
        refuse_exactly_once(app)


def test_exactly_once_is_refused_when_the_transport_is_made(tmp_path: Path) -> None:
    app = ours(tmp_path, SimpleNamespace(), [])  # type: ignore[arg-type]
    app.conf.processing_guarantee = "exactly_once"
    with pytest.raises(ImproperlyConfigured, match="exactly_once"):
        _ = app.transport


def test_nothing_of_a_new_assignment_is_delivered_before_faust_knows_of_it(tmp_path: Path) -> None:
    """The flow is on where a node had no partitions: their changelogs were read before their places were known."""
    active: list[set[TP]] = []

    async def scene() -> None:
        log = open_log(tmp_path)
        app = ours(tmp_path, log, [])
        know = app._on_partitions_assigned

        async def assigned(tps: set[TP], generation: int = 0) -> None:
            active.append(set(app.consumer._active_partitions))
            await know(tps, generation)

        app._on_partitions_assigned = assigned
        async with started(app, log):
            await until(lambda: active)

    asyncio.run(scene())
    assert active == [set()]
