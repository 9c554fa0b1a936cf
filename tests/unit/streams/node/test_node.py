"""A whole node on the embedded log: one for all tests of this file, each with sessions of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial

import msgspec
import pytest

from streams.embedded.maintenance import Maintenance
from streams.node.node import Node
from tests.unit.streams.driver.applications import PARTITIONS
from tests.unit.streams.node.nodes import Home, committed, log_of, send, tp, view
from tests.unit.streams.sessions.studio import FILE, STREAM, sound, truth
from tests.waiting import until
from topics import record_codec
from topics.catalog import (
    CHANGELOG,
    COMMANDS,
    COMMANDS_PARKED,
    JOB_COMMANDS,
    JOB_RESULTS,
    PARKED,
    RESULTS,
    RESULTS_PARKED,
    TopicPartition,
)
from topics.errors import Unavailable
from topics.keys import new_id, partition_of
from topics.records import Parked
from topics.sessions.records import Chunk, Cursor, Deleted, Failed, Scored, Sealed

IDLE_SECONDS = 3600.0


class Running(msgspec.Struct):
    """A node that serves, its home, and how to run something beside it."""

    home: Home
    node: Node
    run: Callable[[Coroutine[None, None, None]], None]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = Home(tmp_path_factory.mktemp("node"))
    with asyncio.Runner() as runner:
        serving = home.serving(idle_seconds=IDLE_SECONDS, sweep_seconds=0.05)
        node = runner.run(serving.__aenter__())
        yield Running(home, node, runner.run)
        runner.run(serving.__aexit__(None, None, None))
    assert home.failures == 0


def uploads(data: bytes, count: int) -> list[Chunk]:
    size = len(data) // count
    return [Chunk(f"c{n}", n, data[n * size : (n + 1) * size]) for n in range(count)]


def scores(node: Node, session: str, first: int = 0, count: int = 10_000) -> bytes:
    return b"".join(windows.scores for windows in node.sessions.windows(session, first, count))


def parked(node: Node, topic: str, session: str) -> list[Parked]:
    records = log_of(node).read(tp(topic, session), 0, 1000, 10**9)
    return [
        parked for record in records if (parked := record_codec.decode_parked(record.value)).key == session.encode()
    ]


def test_what_is_sent_comes_back_as_windows(running: Running) -> None:
    node, session, data = running.node, new_id(), sound(3)

    async def scene() -> None:
        verdicts = await send(node, session, STREAM, *uploads(data, 6), Sealed("s"))
        assert [verdict.status for verdict in verdicts] == [200] * 7 + [204]
        follower = node.sessions.follow(session)
        while not view(node, session).head.finished:
            assert await follower.changed(5)
        follower.close()
        assert scores(node, session) == truth(data)
        assert [node.sessions.tags(windows.model) for windows in node.sessions.windows(session, 0, 1)] == [
            node.sessions.official_tags()
        ]
        assert len(node.sessions.official_tags()) == 8

    running.run(scene())


def test_pages_are_parts_of_the_whole(running: Running) -> None:
    node, session, data = running.node, new_id(), sound(21, seed=4)

    async def scene() -> None:
        await send(node, session, FILE, *uploads(data, 3), Sealed("s"))
        await until(lambda: view(node, session).head.finished)
        whole = truth(data)
        for first, count in [(0, 1), (0, 16), (15, 2), (16, 16), (7, 30), (40, 100), (5, 0)]:
            assert scores(node, session, first, count) == whole[first * 8 : (first + count) * 8]
            assert [windows.first for windows in node.sessions.windows(session, first, count)][:1] in ([first], [])

    running.run(scene())


def test_an_unknown_session_is_not_there(running: Running) -> None:
    node, session = running.node, new_id()

    async def scene() -> None:
        assert node.sessions.view(session) is None
        assert (await node.sessions.submit(session, Sealed("s"))).status == 404

    running.run(scene())


def test_a_node_that_serves_is_alive_and_ready(running: Running) -> None:
    assert running.node.alive() is None
    assert running.node.ready() is None
    assert {name for name, _, _ in running.node.gauges()} >= {"earshot_windows", "earshot_queue_bytes"}


# --- poison ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        (True, b"", "the record has no value"),
        (True, b"\x02later", "record version 2 is not known"),
        (True, b"\x01noise", "not a record"),
        (True, record_codec.encode(Failed("a result")), "not a record"),
        (False, record_codec.encode(Sealed("s")), "key is not an id"),
    ],
)
def test_poison_on_the_command_topic_is_parked_and_the_partition_goes_on(
    running: Running, key: bool, value: bytes, cause: str
) -> None:
    node, session = running.node, new_id()

    async def scene() -> None:
        log, at = log_of(node), tp(COMMANDS, session)
        before = log.end(tp(COMMANDS_PARKED, session))
        await send(node, session, STREAM)
        ack = await log.append(*at, session.encode() if key else b"\xff", value)
        assert (await send(node, session, Chunk("c", 0, sound(1))))[0].status == 200
        [record] = log.read(tp(COMMANDS_PARKED, session), before, 10, 10**9)
        dead_letter = record_codec.decode_parked(record.value)
        assert (dead_letter.topic, dead_letter.partition, dead_letter.offset) == (COMMANDS, at.partition, ack.offset)
        assert dead_letter.value == value
        assert cause in dead_letter.cause
        await until(lambda: (committed(node, *at) or 0) > ack.offset)

    running.run(scene())


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"\x01noise", "not a record"),
        (record_codec.encode(Sealed("a command")), "not a record"),
        (record_codec.encode(Scored(0, "unknown@model", b"12345678", Cursor())), "not known here"),
        (record_codec.encode(Scored(0, "fingerprint", b"123", Cursor(), tags=8)), "no whole windows"),
        (record_codec.encode(Scored(7, "fingerprint", b"12345678", Cursor(), tags=8)), "only 0 are known"),
    ],
)
def test_poison_on_the_result_topic_is_parked_and_the_partition_goes_on(
    running: Running, value: bytes, cause: str
) -> None:
    node, session, data = running.node, new_id(), sound(1)

    async def scene() -> None:
        await send(node, session, STREAM)
        ack = await log_of(node).append(*tp(RESULTS, session), session.encode(), value)
        await send(node, session, Chunk("c", 0, data))
        await until(lambda: view(node, session).head.windows)
        assert scores(node, session) == truth(data)
        [dead_letter] = parked(node, RESULTS_PARKED, session)
        assert (dead_letter.topic, dead_letter.offset) == (RESULTS, ack.offset)
        assert cause in dead_letter.cause
        await until(lambda: (committed(node, *tp(RESULTS, session)) or 0) > ack.offset)
        assert node.agents.parked > 0

    running.run(scene())


def test_every_folded_topic_has_its_dead_letter_topic() -> None:
    assert {
        topic: topic.replace(".v1", ".dlq.v1") for topic in (COMMANDS, RESULTS, JOB_COMMANDS, JOB_RESULTS)
    } == PARKED


# --- deletion and expiry --------------------------------------------------------------------------------------------


def test_a_late_result_of_a_deleted_session_is_dropped(running: Running) -> None:
    node, session = running.node, new_id()

    async def scene() -> None:
        await send(node, session, STREAM, Chunk("c", 0, sound(1)))
        await until(lambda: view(node, session).head.windows)
        assert (await send(node, session, Deleted("d")))[0].status == 204
        late = record_codec.encode(Scored(1, "fingerprint", b"12345678", Cursor(2), tags=8))
        ack = await log_of(node).append(*tp(RESULTS, session), session.encode(), late)
        await until(lambda: (committed(node, *tp(RESULTS, session)) or 0) > ack.offset)
        assert node.sessions.view(session) is None
        assert node.sessions.windows(session, 0, 10) == []
        assert parked(node, RESULTS_PARKED, session) == []

    running.run(scene())


def test_an_idle_session_is_deleted_after_its_hour_and_one_in_use_is_not(running: Running) -> None:
    node, idle, used = running.node, new_id(), new_id()

    async def scene() -> None:
        clock = running.home.clock
        await send(node, idle, STREAM)
        await send(node, used, STREAM)
        clock.now += IDLE_SECONDS
        assert (await send(node, used, Chunk("c", 0, sound(1))))[0].status == 200
        await asyncio.sleep(0.15)
        # Exactly an hour is not more than an hour.
        assert node.sessions.view(idle) is not None
        clock.now += 1
        follower = node.sessions.follow(idle)
        await until(lambda: node.sessions.view(idle) is None)
        assert await follower.changed(5)
        follower.close()
        assert node.sessions.view(used) is not None
        clock.now += IDLE_SECONDS
        await until(lambda: node.sessions.view(used) is None)
        assert (await send(node, used, Chunk("c", 1, sound(1))))[0].status == 404

    running.run(scene())


# --- what the log must keep -----------------------------------------------------------------------------------------


def test_the_log_is_trimmed_up_to_the_audio_that_is_still_needed(running: Running) -> None:
    node, session, data = running.node, new_id(), sound(2)
    at = tp(COMMANDS, session)

    async def scene() -> None:
        log = log_of(node)
        keeper = Maintenance(log, floor=node.floor)
        await send(node, session, FILE)
        needed = log.end(at)
        await send(node, session, *uploads(data, 2))
        await until(lambda: committed(node, *at) == log.end(at))
        assert node.floor(at) == needed
        await keeper.round()
        assert log.earliest(at) == needed
        await send(node, session, Sealed("s"))
        await until(lambda: view(node, session).head.finished)
        assert scores(node, session) == truth(data)
        await until(lambda: node.floor(at) == log.end(at))
        await keeper.round()
        assert log.earliest(at) == log.end(at)

    running.run(scene())


def test_the_persisted_offset_follows_the_commit_and_never_passes_the_changelog(running: Running) -> None:
    node, session = running.node, new_id()
    changelog = tp(CHANGELOG, session)

    async def scene() -> None:
        log, table = log_of(node), node.application.row_table
        await send(node, session, STREAM, *uploads(sound(1), 2))
        await until(lambda: committed(node, *tp(COMMANDS, session)) == log.end(tp(COMMANDS, session)))
        await until(lambda: table.data.persisted_offset(changelog) is not None)
        for _ in range(20):
            assert table.data.persisted_offset(changelog) <= log.end(changelog) - 1
            await asyncio.sleep(0.01)

    running.run(scene())


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_full_queue_is_unavailable_at_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    node = running.node
    monkeypatch.setattr(log_of(node)._writer, "_limit", 10)

    async def scene() -> None:
        with pytest.raises(Unavailable, match="queue is full"):
            await node.sessions.submit(new_id(), STREAM)
        assert len(node.sender.verdicts) == 0

    running.run(scene())


def test_a_command_without_a_verdict_is_unavailable_in_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is parked, or a log that stalls: the client hears it within five seconds."""
    node = running.node
    monkeypatch.setattr("streams.node.sender.VERDICT_SECONDS", 0.05)
    monkeypatch.setattr(node.sender.verdicts, "resolve", lambda command, verdict: None)

    async def scene() -> None:
        with pytest.raises(Unavailable, match="in time"):
            await node.sessions.submit(new_id(), STREAM)
        assert len(node.sender.verdicts) == 0

    running.run(scene())


# --- rebalance ------------------------------------------------------------------------------------------------------

SUBSCRIBED = {COMMANDS, RESULTS, JOB_COMMANDS, JOB_RESULTS, CHANGELOG}


async def next_change(node: Node, session: str) -> None:
    """Read changes until the partition goes away."""
    follower = node.sessions.follow(session)
    while True:
        assert await follower.changed(5)


async def rebalance(node: Node) -> None:
    """Take the partitions away, give those back that the assignment says, and wait until the node serves."""
    node.served.clear()
    await node.application.consumer._rebalance(SUBSCRIBED)
    await asyncio.wait_for(node.served.wait(), 10)


def test_a_rebalance_sends_readers_away_and_analysis_goes_on_after_it(running: Running) -> None:
    node, sessions, data = running.node, [new_id() for _ in range(6)], sound(2)

    async def scene() -> None:
        for session in sessions:
            await send(node, session, STREAM, *uploads(data, 2))
        reader = asyncio.create_task(next_change(node, sessions[0]))
        generation = node.application.consumer_generation_id
        again = asyncio.create_task(rebalance(node))
        with pytest.raises(Unavailable, match="moved to another node"):
            await reader
        assert node.ready() == "the log is being read"
        with pytest.raises(Unavailable, match="no ready owner"):
            await node.sessions.submit(sessions[0], Sealed("s"))
        await again
        assert node.application.consumer_generation_id == generation + 1
        for session in sessions:
            await send(node, session, Sealed("s"))
            await until(partial(is_finished, node, session))
            assert scores(node, session) == truth(data)

    running.run(scene())
    assert running.node.alive() is None


def test_a_rebalance_that_begins_while_a_node_catches_up_keeps_it_from_serving(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = running.node

    async def scene() -> None:
        surveying, gate = asyncio.Event(), asyncio.Event()

        async def survey(partition: int) -> None:
            surveying.set()
            await gate.wait()

        monkeypatch.setattr(node.job_workload, "survey", survey)
        again = asyncio.create_task(rebalance(node))
        await asyncio.wait_for(surveying.wait(), 5)
        node.application.on_rebalance_start()
        gate.set()
        await asyncio.sleep(0.02)
        assert node.ready() == "the log is being read"
        again.cancel()
        monkeypatch.undo()
        await rebalance(node)
        assert node.ready() is None

    running.run(scene())


def test_the_end_of_a_rebalance_is_none_when_the_next_one_has_begun(running: Running) -> None:
    """The tables of one assignment may be recovered just after the driver has said that it is over."""
    node = running.node

    async def scene() -> None:
        node.application.on_rebalance_start()
        node.application.on_rebalance_end()
        await asyncio.sleep(0.02)
        assert node.ready() == "the log is being read"
        await rebalance(node)
        assert node.ready() is None

    running.run(scene())


def is_finished(node: Node, session: str) -> bool:
    return view(node, session).head.finished


def test_a_partition_that_leaves_under_load_and_comes_back_loses_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of the partition are in work and in the buffer when its table is closed."""
    node, data = running.node, sound(6)
    session = next(session for _ in range(100) if partition_of(session := new_id(), PARTITIONS) == 1)
    kept = {TopicPartition(topic, 0) for topic in SUBSCRIBED}

    async def load() -> None:
        for chunk in uploads(data, 12):
            await log_of(node).append(*tp(COMMANDS, session), session.encode(), record_codec.encode(chunk))

    async def scene() -> None:
        await send(node, session, STREAM)
        loading = asyncio.create_task(load())
        monkeypatch.setattr(node.application.consumer, "_assign", lambda topics: kept)
        monkeypatch.setattr(node.application.assignor, "assigned_actives", lambda: kept)
        await rebalance(node)
        with pytest.raises(Unavailable, match="partition 1 has no ready owner here"):
            node.sessions.view(session)
        assert not node.session_workload.analyser._waiting
        await loading
        monkeypatch.undo()
        await rebalance(node)
        await send(node, session, Sealed("s"))
        await until(partial(is_finished, node, session))
        assert scores(node, session) == truth(data)

    running.run(scene())
    assert running.node.alive() is None
