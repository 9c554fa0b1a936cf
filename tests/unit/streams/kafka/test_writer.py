"""Kafka's writer: whole flushes, one report each, and an acknowledgement means delivery."""

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.kafka import delivery_reports
from streams.kafka import kafka_writer as module
from streams.kafka.connection import KafkaConnection
from streams.kafka.kafka_writer import EPOCH_HEADER, GATHERED, KafkaWriter
from streams.log import RECORD_COST, Ack, StoredRecord
from tests.unit.streams.appending import append_soon
from tests.unit.streams.kafka.producers import Cluster, User
from tests.waiting import turn, until, wait_for
from topics.catalog import CHANGELOG, COMMANDS, COMMANDS_PARKED, JOB_COMMANDS, JOB_RESULTS, TopicPartition
from topics.errors import ServiceError, Unavailable
from topics.keys import POSITIONS
from topics.sessions.records import Sealed

LOST = KafkaError(KafkaError._MSG_TIMED_OUT)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Broker doubles without delays."""
    cluster = Cluster()
    monkeypatch.setattr(module, "Producer", cluster.producer)
    monkeypatch.setattr(delivery_reports, "POLL_SECONDS", 0.02)
    return cluster


@pytest.fixture
def user() -> User:
    return User()


@pytest.fixture
def writer(cluster: Cluster, user: User, loop: asyncio.Runner) -> Iterator[KafkaWriter]:
    writer = KafkaWriter(KafkaConnection(("localhost:9092",)), 10_000, 2**20)
    writer.user = user
    yield writer
    loop.run(writer.close())


async def settle(cluster: Cluster, count: int = 1000) -> None:
    """Produce the appended records, acknowledge them, and process the reports."""
    await turn()
    cluster.acknowledge(count)
    await until(lambda: cluster.has_reported)
    await turn()


async def all_fail(*waiting: Awaitable[object], match: str) -> None:
    for one in waiting:
        with pytest.raises(Unavailable, match=match):
            await asyncio.wait_for(one, 60)


# --- producing ------------------------------------------------------------------------------------------------------


async def test_flush_has_one_report_except_for_commands(writer: KafkaWriter, cluster: Cluster) -> None:
    for topic in (JOB_RESULTS, CHANGELOG, COMMANDS):
        for _ in range(3):
            append_soon(writer, topic, 0, b"k", b"v", 7)
    await turn()
    asked = [(record.tp.topic, record.report is not None) for record in cluster.waiting]
    assert asked == [
        *((topic, last) for topic in (JOB_RESULTS, CHANGELOG) for last in (False, False, True)),
        *[(COMMANDS, True)] * 3,
    ]


async def test_changelog_rows_carry_epoch_of_owner(writer: KafkaWriter, cluster: Cluster) -> None:
    append_soon(writer, CHANGELOG, 0, b"k", None, 258)
    writer.append(CHANGELOG, 0, b"k", b"v", epoch=1)
    writer.append(COMMANDS, 0, b"k", b"v")
    await turn()
    epochs = [[(name, int.from_bytes(value, "big")) for name, value in one.headers] for one in cluster.waiting]
    assert epochs == [[(EPOCH_HEADER, 258)], [(EPOCH_HEADER, 1)], []]


async def test_job_parts_use_own_producer_and_all_are_idempotent(writer: KafkaWriter, cluster: Cluster) -> None:
    """Sixteen parallel uploads filled the queue of live audio."""
    for topic in (COMMANDS, JOB_COMMANDS, JOB_RESULTS, CHANGELOG):
        append_soon(writer, topic, 0, b"k", b"v")
    await turn()
    topics = [{record.tp.topic for record in producer.waiting} for producer in cluster.producers]
    assert topics == [{COMMANDS, JOB_RESULTS, CHANGELOG}, {JOB_COMMANDS}]
    safety = {"acks": "all", "enable.idempotence": True, "enable.gapless.guarantee": True}
    assert all(producer.settings.items() >= safety.items() for producer in cluster.producers)


async def test_what_comes_in_consecutive_iterations_is_flushed_together(writer: KafkaWriter, cluster: Cluster) -> None:
    """But only so many of them: a record does not wait without end for others."""
    append_soon(writer, JOB_RESULTS, 0, b"k", b"0")
    for number in range(1, 4):
        append_soon(writer, JOB_RESULTS, 0, b"k", b"%d" % number)
        await asyncio.sleep(0)
        assert cluster.values == []
    await turn()
    assert cluster.values == [b"0", b"1", b"2", b"3"]
    assert [record.report is not None for record in cluster.waiting] == [False, False, False, True]
    append_soon(writer, JOB_RESULTS, 0, b"k", b"0")
    for number in range(GATHERED + 2):
        append_soon(writer, JOB_RESULTS, 0, b"k", b"%d" % number)
        await asyncio.sleep(0)
    assert len(cluster.values) > 4


async def test_reports_that_came_together_reach_the_loop_in_one_call(writer: KafkaWriter, cluster: Cluster) -> None:
    """The loop does not look for them meanwhile: each look would wake it."""
    loop = asyncio.get_running_loop()
    with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as passed:
        futures = [writer.append(COMMANDS, 0, b"k", b"v") for _ in range(3)]
        await turn()
        with cluster.producers[0].making:
            cluster.acknowledge()
        await asyncio.gather(*futures)
    passed.assert_called_once()


# --- acknowledgements -----------------------------------------------------------------------------------------------


async def test_flushes_are_acknowledged_and_delivered_in_order(
    writer: KafkaWriter, cluster: Cluster, user: User
) -> None:
    """Each command has its own time, results share one, and only folded topics are delivered."""
    tp, results = TopicPartition(COMMANDS, 3), TopicPartition(JOB_RESULTS, 1)
    cluster.ends |= {tp: 7, results: 40}
    seen: list[int] = []
    first = [writer.append(*tp, b"k", b"a", content=Sealed("c")), writer.append(*tp, b"l", b"b")]
    first[0].add_done_callback(lambda _: seen.append(len(user.delivered)))
    of_results = [writer.append(*results, b"k", b"%d" % number) for number in range(3)]
    for topic in (CHANGELOG, COMMANDS_PARKED):
        append_soon(writer, topic, 3, b"row", b"v")
    await turn()
    second = [writer.append(*tp, b"k", b"c") for _ in range(3)]
    await turn()
    assert (user.delivered, any(future.done() for future in first)) == ([], False)
    await settle(cluster, 7)
    assert [await future for future in first] == [Ack(7, 1001), Ack(8, 1002)]
    assert [await future for future in of_results] == [Ack(40, 1005), Ack(41, 1005), Ack(42, 1005)]
    delivered = [StoredRecord(7, 1001, b"k", b"a", 0, Sealed("c")), StoredRecord(8, 1002, b"l", b"b")]
    assert (user.delivered[0], [tp for tp, _ in user.delivered], seen) == ((tp, delivered), [tp, results], [2])
    assert not any(future.done() for future in second)
    await settle(cluster)
    assert [await future for future in second] == [Ack(9, 1008), Ack(10, 1009), Ack(11, 1010)]
    assert [record.offset for record in user.delivered[2][1]] == [9, 10, 11]
    assert (len(user.delivered), writer.queued_bytes) == (3, 0)


@pytest.mark.parametrize(("topic", "gaps"), [(CHANGELOG, [(14, 19)]), (COMMANDS, [])])
async def test_foreign_records_are_a_gap_in_the_changelog_alone(
    writer: KafkaWriter, cluster: Cluster, user: User, topic: str, gaps: list[tuple[int, int]]
) -> None:
    tp = TopicPartition(topic, 0)
    cluster.ends[tp] = 10
    for foreign in (0, 0, 3, 0):
        cluster.ends[tp] += foreign
        writer.append_rows(*tp, {b"k": b"v", b"l": b"v"}, 2)
        await settle(cluster)
    assert user.gaps == [(tp, *gap) for gap in gaps]
    assert len(user.delivered) == (0 if gaps else 4)


@pytest.mark.parametrize("topic", [CHANGELOG, COMMANDS])
async def test_offset_below_acknowledged_one_is_a_loss(
    writer: KafkaWriter, cluster: Cluster, user: User, topic: str
) -> None:
    losses: list[tuple[TopicPartition, int, int]] = []
    writer.note_loss = lambda *loss: losses.append(loss)
    tp = TopicPartition(topic, 0)
    for _ in range(3):
        append_soon(writer, *tp, b"k", b"a")
        await settle(cluster)
    assert not losses
    cluster.ends[tp] = 1
    append_soon(writer, *tp, b"k", b"b")
    await settle(cluster)
    assert losses == [(tp, 3, 1)]
    assert user.gaps == []


# --- the queue ------------------------------------------------------------------------------------------------------


async def test_full_queue_rejects_clients_but_not_changelog(writer: KafkaWriter, cluster: Cluster) -> None:
    writer.limit = 300
    writer.append(COMMANDS, 0, b"", bytes(300))
    assert writer.queued_bytes == 300 + RECORD_COST
    with pytest.raises(Unavailable, match="queue is full"):
        writer.append(COMMANDS, 0, b"", b"")
    writer.append(COMMANDS, 0, b"key", bytes(100), bounded=False)
    append_soon(writer, CHANGELOG, 0, b"", None)
    assert writer.queued_bytes == 300 + 103 + 3 * RECORD_COST
    await turn()
    assert len(cluster.waiting) == 3
    assert writer.queued_bytes == 300 + 103 + 3 * RECORD_COST
    await settle(cluster)
    assert writer.queued_bytes == 0
    writer.append(COMMANDS, 0, b"", b"")


async def test_flush_waits_only_for_earlier_records(writer: KafkaWriter, cluster: Cluster) -> None:
    await writer.flush()
    for number in range(3):
        append_soon(writer, CHANGELOG, number, b"k", b"%d" % number)
    flush = asyncio.create_task(writer.flush())
    await turn()
    append_soon(writer, CHANGELOG, 9, b"k", b"after")
    await settle(cluster, 2)
    assert not flush.done()
    await settle(cluster, 1)
    await asyncio.wait_for(flush, 60)
    assert writer.queued_bytes == RECORD_COST + len(b"kafter")


# --- lost records ---------------------------------------------------------------------------------------------------


async def test_dropped_records_fail_and_are_forgotten(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    tp = TopicPartition(CHANGELOG, 0)
    append_soon(writer, *tp, b"k", b"durable")
    await settle(cluster)
    in_flight = writer.append(COMMANDS, 0, b"k", b"in flight")
    append_soon(writer, *tp, b"k", b"row in flight")
    flush = asyncio.create_task(writer.flush())
    await turn()
    pending = writer.append(COMMANDS, 0, b"k", b"pending")
    writer.drop("the partitions are another node's")
    await all_fail(in_flight, pending, flush, match="another node's")
    assert getattr(in_flight.exception(), "uncertain", False), "Kafka may still store it"
    assert writer.queued_bytes == 0
    await turn()
    assert cluster.producers == []
    [old] = cluster.gone
    assert b"pending" not in [record.value for record in old.waiting]
    # It was in flight, and was written after all.
    cluster.ends[tp] += 1
    await asyncio.wait_for(writer.flush(), 60)
    again = writer.append(*tp, b"k", b"again")
    await settle(cluster)
    assert (await again).offset == 2
    assert (writer.queued_bytes, user.gaps, user.delivered, user.failures) == (0, [], [], [])


async def test_reports_after_drop_are_ignored(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    append_soon(writer, COMMANDS, 0, b"k", b"v")
    await turn()
    cluster.acknowledge()
    writer.drop("gone")
    await turn()
    assert (writer.queued_bytes, user.delivered, user.failures) == (0, [], [])
    again = writer.append(COMMANDS, 0, b"k", b"again")
    await settle(cluster)
    assert (await again).offset == 1
    assert [[record.value for record in records] for _, records in user.delivered] == [[b"again"]]


async def test_writer_without_valid_lease_produces_nothing(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    """Nothing waits for rows: if the node went on as owner, its tables would have rows that no changelog gets."""
    future = writer.append(COMMANDS, 0, b"k", b"v")
    append_soon(writer, CHANGELOG, 0, b"k", b"v")
    user.valid = False
    await turn()
    assert cluster.producers == []
    await all_fail(future, match="may have lost its partitions")
    assert writer.queued_bytes == 0
    assert user.lapses == ["this node may have lost its partitions"]
    user.valid = True
    append_soon(writer, CHANGELOG, 0, b"k", b"of the next owner")
    await turn()
    assert cluster.values == [b"of the next owner"]
    assert len(user.lapses) == 1
    assert user.failures == []


async def test_lost_record_fails_waiters_and_stops_node(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    """Rows after a lost one would make an inconsistent table."""
    append_soon(writer, CHANGELOG, 0, b"k", b"row")
    command = writer.append(COMMANDS, 0, b"k", b"v")
    flush = asyncio.create_task(writer.flush())
    await turn()
    cluster.lose(LOST)
    await all_fail(command, flush, match=f"{CHANGELOG}/0 does not take records")
    [failure] = user.failures
    assert isinstance(failure, ServiceError)
    assert writer.queued_bytes == 0


async def test_nothing_follows_lost_record_while_node_stops(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    """Positions after a lost row would tell the next owner that its command is folded."""
    append_soon(writer, CHANGELOG, 0, b"k", b"row")
    await turn()
    cluster.lose(LOST)
    await until(lambda: user.failures)
    producers = len(cluster.producers)
    append_soon(writer, CHANGELOG, 0, b"k", b"later row")
    positions = writer.append(CHANGELOG, 0, POSITIONS, b"positions", bounded=False)
    await all_fail(positions, match=f"{CHANGELOG}/0 does not take records")
    assert len(cluster.producers) == producers
    assert (writer.queued_bytes, user.lapses) == (0, [])
    await asyncio.wait_for(writer.flush(), 60)


@pytest.mark.parametrize("refused", ["all", "one of a batch"])
async def test_produce_error_stops_node(writer: KafkaWriter, cluster: Cluster, user: User, refused: str) -> None:
    if refused == "all":
        cluster.faults = [KafkaException(KafkaError(KafkaError._FATAL))]
        append_soon(writer, CHANGELOG, 0, b"k", b"row")
    cluster.unfit = {b"too large"}
    commands = [writer.append(COMMANDS, 0, b"k", value) for value in (b"a", b"too large", b"b")]
    await turn()
    await all_fail(*commands, match="Kafka does not take records")
    assert len(user.failures) == 1
    assert user.delivered == []


async def test_fatal_error_in_poll_stops_node(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    append_soon(writer, CHANGELOG, 0, b"k", b"row")
    await turn()
    fatal = KafkaException(KafkaError(KafkaError._FATAL))
    with mock.patch.object(cluster.producers[0], "poll", side_effect=fatal) as poll:
        await until(lambda: user.failures)
    poll.assert_called_once()


async def test_fatal_error_of_dropped_records_stops_nothing(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    """librdkafka calls it a fault if a producer that is left loses what was in flight."""
    append_soon(writer, CHANGELOG, 0, b"k", b"row")
    await turn()
    left, polls, before = cluster.producers[0], threading.Event(), threading.active_count()

    def poll(timeout: float) -> int:
        polls.set()
        wait_for(lambda: left.purged)
        raise KafkaException(KafkaError(KafkaError._FATAL))

    with mock.patch.object(left, "poll", poll):
        await until(polls.is_set)
        writer.drop("the node has lost its partitions")
        await until(lambda: threading.active_count() < before)
    assert user.failures == []


async def test_cancelled_append_is_not_a_failure(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    cancelled, kept = (writer.append(COMMANDS, 0, b"k", b"v") for _ in range(2))
    cancelled.cancel()
    await settle(cluster)
    assert (await kept).offset == 1
    assert [record.offset for _, records in user.delivered for record in records] == [0, 1]
    writer.append(COMMANDS, 0, b"k", b"v").cancel()
    writer.drop("gone")
    assert user.failures == []


async def test_close_fails_pending_appends_and_flushes(writer: KafkaWriter) -> None:
    waiting = writer.append(COMMANDS, 0, None, b"1")
    flush = asyncio.create_task(writer.flush())
    await turn()
    await writer.close()
    await all_fail(waiting, flush, match="stopped")


async def test_foreign_records_at_end_are_reported_when_idle(writer: KafkaWriter, cluster: Cluster, user: User) -> None:
    tp = TopicPartition(CHANGELOG, 3)
    assert not writer.note_end(tp, 9)
    append_soon(writer, *tp, b"k", b"v", 2)
    await turn()
    assert not writer.note_end(tp, 9)
    assert user.gaps == []  # Their writer is not known yet.
    await settle(cluster)
    assert writer.note_end(tp, 1)
    assert user.gaps == []
    assert not writer.note_end(tp, 3)
    assert writer.note_end(tp, 3)
    assert user.gaps == [(tp, 1, 3)]
