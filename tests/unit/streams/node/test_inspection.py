"""A node's report to operators: partitions and their progress, queues, and parked records."""

import asyncio
from unittest import mock

import pytest
from msgspec import structs

from streams.node import inspection
from streams.node.inspection import UNKNOWN, Inspection, LogFacts
from streams.node.node import Node
from tests.unit.streams.node.nodes import PARTITIONS, Home, log_of, send
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics import record_codec
from topics.catalog import CHANGELOG, COMMANDS, COMMANDS_PARKED, JOB_RESULTS_PARKED, TopicPartition
from topics.errors import Unavailable
from topics.ports.nodes import NEWEST_PARKED, StandbyFacts
from topics.records import Parked
from topics.sessions.records import Chunk


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "LOG_SECONDS", 60.0)


async def told(look: Inspection) -> LogFacts:
    facts = await look.log_facts()
    assert isinstance(facts, LogFacts), facts
    return facts


async def park(node: Node, topic: str, partition: int, offset: int, cause: str = "a fault", size: int = 1) -> None:
    record = Parked(COMMANDS, partition, offset, cause, b"k", b"v" * size)
    await log_of(node).append(topic, partition, b"k", record_codec.encode(record))


async def test_report_of_partitions_queues_and_workers(node: Node) -> None:
    look = Inspection(node, 1000)
    await until(lambda: len(node.workers.processes()) == 2)
    session, other = node.sessions.new_id(), node.sessions.new_id()
    for id in session, other:
        await send(node, id, STREAM, Chunk("c", 0, sound(1)))
    number = node.owners.number(session)
    assert node.owners.number(other) == number
    partitions = look.partitions(await told(look))
    assert [one.number for one in partitions] == list(range(PARTITIONS))
    assert {one.state for one in partitions} == {"serving"}
    (commands,) = [place for place in partitions[number].topics if place.topic == COMMANDS]
    assert (commands.folded, commands.behind) == (4, 0)
    queues = {queue.name: queue for queue in look.queues()}
    assert queues["records that wait for the log"].bytes_bound == 1000
    # Records appended by another process count as lag before this one has read them.
    commands_there = TopicPartition(COMMANDS, number)
    late = structs.replace(UNKNOWN, bounds={commands_there: (0, 14)}, behind={commands_there: (10, 2.5)})
    (commands,) = [place for place in look.partitions(late)[number].topics if place.topic == COMMANDS]
    assert (commands.behind, commands.behind_seconds) == (10, 2.5)
    await until(lambda: sum(one.sessions for one in look.workers()) == 2)
    await until(lambda: {one.state for one in look.workers()} == {"idle"})
    assert {one.project for one in look.workers()} == {None}
    shared = node.workers.slots()[0]
    waiting = node.workers.slot("p")
    waiting.count, shared.deaths = 3, 2
    with mock.patch.multiple(shared, process=None, starting=mock.sentinel.task):
        gone, _, last = look.workers()
    assert (gone.process, gone.state, gone.deaths) == (None, "starting", 2)
    assert (last.project, last.state, last.waiting) == ("p", "waiting", 3)
    await look.stop()


async def test_parked_records_are_counted_and_newest_shown(home: Home, node: Node) -> None:
    look = Inspection(node, 1000)
    assert (await told(look)).parked.count == 0
    for offset in range(NEWEST_PARKED + 20):
        home.clock.now += 1
        await park(node, COMMANDS_PARKED, 0, offset)
    home.clock.now += 1
    await park(node, JOB_RESULTS_PARKED, 2, 7, cause="x" * 10_000)
    parked = (await told(look)).parked
    assert (parked.count, parked.newest[-1].topic) == (NEWEST_PARKED + 21, COMMANDS)
    assert len(parked.newest) == NEWEST_PARKED
    assert (parked.newest[0].partition, len(parked.newest[0].cause)) == (2, inspection.LONGEST_CAUSE)
    assert [one.offset for one in parked.newest[1:4]] == [119, 118, 117]
    # Records already read are not read again.
    with mock.patch.object(node.backend, "read", side_effect=AssertionError):
        assert (await told(look)).parked == parked
    # Records that the log has deleted are not shown.
    log_of(node).trim(TopicPartition(JOB_RESULTS_PARKED, 2), 1)
    await log_of(node).flush()
    assert (await told(look)).parked.newest[0].offset == 119
    home.clock.now += 1
    await park(node, COMMANDS_PARKED, 1, 3)
    assert (await told(look)).parked.newest[0].offset == 3
    home.clock.now += 1
    await log_of(node).append(COMMANDS_PARKED, 0, b"k", b"\xc1 what another program left")
    assert (await told(look)).parked.newest[0].cause.startswith("unreadable itself: record version 193")


async def test_lag_of_standbys_is_counted_from_the_first_record_that_waits(home: Home, node: Node) -> None:
    look = Inspection(node, 1000)
    there = TopicPartition(CHANGELOG, 1)
    await log_of(node).append(*there, b"k", b"v")
    home.clock.now += 3
    await log_of(node).append(*there, b"l", b"v")
    (_, end) = (await node.backend.bounds([there]))[there]
    places = {1: (end - 2, None), 2: (10**9, None), 3: (0, "its table is not open")}
    with mock.patch.object(node.partitions.standbys, "places", return_value=places):
        standbys = look.standbys(await told(look))
    assert standbys[0] == StandbyFacts(1, 2, 3.0)
    assert standbys[1] == StandbyFacts(2, 0, 0.0)
    assert (standbys[2].number, standbys[2].reason) == (3, "its table is not open")
    assert look.clock_ahead_seconds() == 0


async def test_silent_log_is_reported_and_asked_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    look, asked = Inspection(node, 1000), 0

    async def silent(tps: object) -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)

    with mock.patch.object(node.backend, "bounds", silent), monkeypatch.context() as patch:
        patch.setattr(inspection, "LOG_SECONDS", 0.05)
        first, second = await asyncio.gather(look.log_facts(), look.log_facts())
        assert first == second == "the log did not answer within 0.05 s"
        assert asked == 1
        assert look.partitions(UNKNOWN)[0].topics[0].behind == 0
        await look.stop()
    look = Inspection(node, 1000)
    with mock.patch.object(node.backend, "bounds", side_effect=Unavailable("Kafka does not answer")):
        assert await look.log_facts() == "Kafka does not answer"
    assert isinstance(await look.log_facts(), LogFacts)
