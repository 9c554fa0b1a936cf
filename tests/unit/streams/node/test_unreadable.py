"""Unreadable data: a row affects only its session, a record is parked, and too many stop their partition."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.disk import DatabaseFailed
from streams.folding import sweeper
from streams.folding.fold import Changes
from streams.node import stop_notes
from streams.node.inspection import UNKNOWN, Inspection
from streams.node.node import Node
from streams.node.partition_consumer import PARKED_AT_LEAST
from streams.sessions.store import SessionStore
from tests.unit.streams.node.nodes import Home, in_partition, log_of, noted, scores, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound, truth
from tests.unit.streams.verdicts import awaited
from tests.waiting import until
from topics import keys, record_codec
from topics.catalog import CHANGELOG, COMMANDS, COMMANDS_PARKED, TopicPartition
from topics.errors import Damaged, Unavailable
from topics.folding import Verdict
from topics.jobs.records import Part
from topics.ports.stops import Decision, Stop
from topics.records import Parked
from topics.sessions import commands
from topics.sessions.records import Chunk, Sealed

NUMBER = 1
LATER = b"\x02" + record_codec.encode(Sealed("c"))[1:]


def parked(node: Node) -> list[Parked]:
    records = log_of(node).read(TopicPartition(COMMANDS_PARKED, NUMBER), 0, 100, 10**9)
    return [record_codec.decode_parked(record.value) for record in records]


@asynccontextmanager
async def beside(home: Home, rows: Mapping[bytes, bytes], *unreadable: str) -> AsyncIterator[Node]:
    """Serve with rows of unreadable ids, each of which is reported once, while another session is analysed."""
    good, data = in_partition(NUMBER), sound(1)
    for key, row in rows.items():
        await home.append(TopicPartition(CHANGELOG, NUMBER), key, row)
    with capture_logs() as lines:
        async with home.serving(sweep_seconds=0.02) as node:
            assert node.ready() is None
            yield node
            await send(node, good, STREAM, Chunk("c", 0, data), Sealed("s"))
            await until(lambda: view(node, good).head.finished)
            assert scores(node, good) == truth(data)
            assert (node.ready(), node.alive()) == (None, None)
    told = sorted((line["id"], line["partition"]) for line in lines if line["event"] == "row.unreadable")
    assert told == sorted((id[:8], NUMBER) for id in unreadable)
    assert home.failures == 0


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("value", [b"\x02of a later version", b"\x01\x93\xa4film\xc0\x00"])
async def test_unreadable_head_affects_only_its_session(tmp_path: Path, value: bytes, indexed: bool) -> None:
    """It used to kill one node after another."""
    bad = in_partition(NUMBER)
    rows = {keys.row_key(keys.SESSION, bad, keys.HEAD): value}
    if indexed:
        rows |= {keys.SESSION_OPEN + bad.encode(): b"", keys.INDEXED + keys.SESSION: b""}
    async with beside(Home(tmp_path), rows, bad) as node:
        with pytest.raises(Damaged):
            node.sessions.view(bad)
        ack = await log_of(node).append(COMMANDS, NUMBER, bad.encode(), record_codec.encode(Sealed("c")))
        await until(lambda: (noted(node, COMMANDS, NUMBER) or 0) > ack.offset)
        [record] = parked(node)
        assert record.cause.startswith("RecordError: ")
        assert (record.topic, record.partition, record.offset) == (COMMANDS, NUMBER, ack.offset)
        assert (record.key, record.value) == (bad.encode(), record_codec.encode(Sealed("c")))
        stored = node.owners.here[NUMBER].rows.get(keys.row_key(keys.SESSION, bad, keys.HEAD))
        assert stored == value, "a newer node may read it"


async def test_sweeper_skips_unreadable_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sweep used to park a command for it, until the partition stopped; others were never expired."""
    monkeypatch.setattr(sweeper, "SWEEP", 1)
    home, bad = Home(tmp_path), [in_partition(NUMBER) for _ in range(2)]
    gone = keys.due_key(3, in_partition(NUMBER))
    heads = {keys.row_key(keys.SESSION, id, keys.HEAD): b"\x03of a later version" for id in bad}
    due = {keys.due_key(at, id): b"" for at, id in enumerate(bad, 1)}
    async with beside(home, heads | due | {gone: b""}, *bad) as node:
        rows = node.owners.here[NUMBER].rows
        await until(lambda: rows.get(gone) is None)
        assert all(rows.get(key) is not None for key in due), "a newer node may read it"
        assert log_of(node).end(tp(COMMANDS_PARKED, bad[0])) == 0


async def test_unreadable_audio_row_affects_only_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_RECENT", 1)
    home, bad = Home(tmp_path), in_partition(NUMBER)
    async with home.serving() as node:
        node.session_workload.analyser.enqueue = lambda session: None  # type: ignore[method-assign]
        await send(node, bad, STREAM, Chunk("c", 0, sound(1)), Chunk("d", 1, sound(1)))
    async with beside(home, {keys.row_key(keys.SESSION, bad, keys.AUDIO, 0): b"\x02later"}, bad):
        pass


async def test_unreadable_request_affects_only_its_session_or_job(tmp_path: Path) -> None:
    """It used to end the consumer of the analyser, runner or biller, and so the node."""
    home = Home(tmp_path)
    bad, job = (in_partition(NUMBER) for _ in range(2))
    async with home.serving() as node:
        await send(node, bad, STREAM)
        await node.jobs.submit(job, Part("p", "u", 0, b"data"))
    rows = {keys.row_key(room, id, keys.REQUEST): b"\x02later" for room, id in ((keys.SESSION, bad), (keys.JOB, job))}
    async with beside(home, rows, bad, job) as node:
        await log_of(node).append(COMMANDS, NUMBER, bad.encode(), record_codec.encode(Chunk("c", 0, sound(1))))
        assert not node.owners.here[NUMBER].jobs.readable(job)


async def test_failed_purge_does_not_block_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, first, second = Home(tmp_path), in_partition(NUMBER), in_partition(NUMBER)
    erased: list[str] = []

    def purge(store: object, id: str, release: object) -> bool:
        if id == first and erased != [second]:
            raise DatabaseFailed("IO error: Too many open files")
        erased.append(id)
        return True

    async with home.serving() as node:
        monkeypatch.setattr(SessionStore, "purge", purge)
        node.session_workload._take(Changes(leftovers={first: None, second: None}))
        await until(lambda: erased == [second, first])
        assert node.alive() is None
        monkeypatch.setattr(SessionStore, "purge", lambda store, id, release: 1 / 0)
        node.session_workload._take(Changes(leftovers={first: None}))
        await until(lambda: node.alive() == "ZeroDivisionError: division by zero")


async def test_records_of_newer_version_stop_only_their_partition(tmp_path: Path) -> None:
    """An older node must not park records that the newer one before it has acknowledged.

    Nothing waits for the partition: a restart would find the same records.
    """
    home, bad, there = Home(tmp_path), in_partition(NUMBER), in_partition(2)
    with capture_logs() as lines:
        async with home.serving() as node:
            reader = node.sessions.follow(bad)
            waiting: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
            node.owners.here[NUMBER].awaited.add(awaited(waiting))
            for _ in range(PARKED_AT_LEAST + 5):
                await log_of(node).append(COMMANDS, NUMBER, bad.encode(), LATER)
            await until(lambda: node.notes() == ["a partition has stopped", "records were set aside"])
            assert node.ready() is None, "one partition's fault is not the node's"
            with pytest.raises(Unavailable, match="no longer serves"):
                await reader.changed(60)
            with pytest.raises(Unavailable, match="record version 2 is not known"):
                await waiting
            reader.close()
            with pytest.raises(Unavailable, match="record version 2 is not known"):
                node.sessions.view(bad)
            assert (await send(node, there, STREAM))[0].status == 200
            assert not any(owner.is_coming for owner in node.owners), "the watch waits for nothing"
            assert {one.name: one.value for one in node.readings()}["earshot_stopped_partitions"] == 1
            assert {node.owners.number(node.sessions.new_id()) for _ in range(20)} <= {0, 2, 3}
            # The last one stopped the partition instead of being set aside.
            assert len(parked(node)) == PARKED_AT_LEAST - 1
            states = [(one.state, one.reason) for one in Inspection(node, 1000).partitions(UNKNOWN)]
            assert [state for state, _ in states] == ["serving", "stopped", "serving", "serving"]
            assert "cannot be read" in (states[NUMBER][1] or "")
            assert node.alive() is None
    assert [line["partition"] for line in lines if line["event"] == "partition.stopped"] == [NUMBER]
    assert home.failures == 0


class Notepad:
    """Notes of stops in memory, and the decisions on them."""

    def __init__(self) -> None:
        self.noted: dict[int, Stop] = {}
        self.decisions: dict[int, Decision] = {}

    async def note(self, stop: Stop) -> Decision | None:
        self.noted[stop.partition] = stop
        decision = self.decisions.get(stop.partition)
        return self.decisions.pop(stop.partition) if decision is Decision.RESUME else decision

    async def clear(self, partition: int) -> None:
        self.noted.pop(partition, None)
        self.decisions.pop(partition, None)


async def test_stop_lasts_until_operator_decides_and_each_record_is_parked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_notes, "POLL_SECONDS", 0.01)
    home, stops, bad, good = Home(tmp_path), Notepad(), in_partition(NUMBER), in_partition(NUMBER)
    async with home.serving(stops=stops) as node:
        await send(node, good, STREAM)
    garbage = [b"garbage %d" % number for number in range(2 * PARKED_AT_LEAST + 1)]
    await home.append(tp(COMMANDS, bad), b"not an id", *garbage)
    await home.append(tp(COMMANDS, bad), good.encode(), record_codec.encode(Chunk("c", 0, sound(1))))
    first = PARKED_AT_LEAST - 1
    for _ in range(3):
        async with home.serving(stops=stops) as node:
            assert node.ready() is None
            assert node.owners.here[NUMBER].stopped
            await until(lambda: NUMBER in stops.noted)
            assert (stops.noted[NUMBER].topic, stops.noted[NUMBER].offset) == (COMMANDS, 1 + first)
            assert [one.offset for one in parked(node)] == list(range(1, 1 + first)), "each owner parked them again"
            stops.decisions[NUMBER] = Decision.RESUME
            await until(lambda: NUMBER not in stops.decisions and node.owners.here[NUMBER].stopped is not None)
            assert [one.offset for one in parked(node)] == list(range(1, 1 + first))
    stops.decisions[NUMBER] = Decision.SKIP
    folded, clear = list[int](), stops.clear

    async def cleared(partition: int) -> None:
        folded.append(noted(node, COMMANDS, partition) or 0)
        await clear(partition)

    monkeypatch.setattr(stops, "clear", cleared)
    async with home.serving(stops=stops) as node:
        await until(lambda: node.owners.here[NUMBER].serving)
        await until(lambda: view(node, good).head.windows == 1)
        await until(lambda: NUMBER not in stops.noted)
        assert folded[0] > len(garbage), "until then the next owner would stop at the same records"
        assert [one.offset for one in parked(node)] == list(range(1, 1 + len(garbage)))
        await until(lambda: not list(node.owners.here[NUMBER].rows.scan(keys.SET_ASIDE, keys.SET_ASIDE + b"\xff")))
    async with home.serving(stops=stops) as node:
        assert node.owners.here[NUMBER].serving
        assert [one.offset for one in parked(node)] == list(range(1, 1 + len(garbage)))
    assert home.failures == 0


async def test_unreadable_row_of_table_itself_stops_only_its_partition(tmp_path: Path) -> None:
    """It ended each node in turn."""
    home, stops = Home(tmp_path), Notepad()
    await home.append(TopicPartition(CHANGELOG, NUMBER), keys.POSITIONS, b"of a later version")
    async with home.serving(stops=stops) as node:
        assert (node.ready(), node.alive()) == (None, None)
        assert "the positions of its topics" in (node.owners.here[NUMBER].stopped or "")
        assert (await send(node, in_partition(2), STREAM))[0].status == 200
        await until(lambda: NUMBER in stops.noted)
