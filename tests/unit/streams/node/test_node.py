"""A whole node on the embedded log, shared by the tests of this file, each with its own sessions."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from streams.disk import DatabaseFailed
from streams.embedded.maintenance import Maintenance
from streams.node.node import Node
from streams.node.owner import PartitionOwner
from streams.ownership import Assignment
from streams.sessions.store import SessionStore
from streams.tables.tables import Rebuilt
from tests.unit.streams.node.nodes import (
    DAY_MS,
    PARTITIONS,
    Home,
    in_partition,
    is_finished,
    log_of,
    noted,
    scores,
    send,
    tp,
    view,
)
from tests.unit.streams.sessions.studio import FILE, STREAM, sound, truth
from tests.waiting import turn, until
from topics.catalog import CHANGELOG, COMMANDS, COMMANDS_PARKED
from topics.errors import NotOwned, Unavailable
from topics.jobs.options import Service
from topics.keys import new_id
from topics.ports.lists import ListQuery
from topics.sessions.records import Chunk, Deleted, Sealed

IDLE_SECONDS = 3600.0


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def node(home: Home, loop: asyncio.Runner) -> Iterator[Node]:
    serving = home.serving(idle_seconds=IDLE_SECONDS, sweep_seconds=0.05)
    yield loop.run(serving.__aenter__())
    loop.run(serving.__aexit__(None, None, None))
    assert home.failures == 0


def uploads(data: bytes, count: int) -> list[Chunk]:
    size = len(data) // count
    return [Chunk(f"c{n}", n, data[n * size : (n + 1) * size]) for n in range(count)]


async def test_notes_report_lost_rebuilt_and_set_aside_data(tmp_path: Path) -> None:
    home = Home(tmp_path)
    node = home.node()
    tables = node.partitions.tables
    (home.tables / "2.damaged-1").mkdir(parents=True)
    assert node.notes() == ["damaged tables were set aside"]  # Before this start.
    tables.rebuilt.append(Rebuilt(2, "Corruption", "/data/2.damaged-2"))
    assert node.notes() == ["a table was rebuilt", "damaged tables were set aside"]
    tables.rebuilt.append(Rebuilt(3, "of another log", "/data/3.damaged-1", is_lost=True))
    node.partitions.takeover.parked.update([COMMANDS_PARKED])
    (home.tables / "2.damaged-1").rmdir()
    assert node.notes() == ["records may be lost", "a table was rebuilt", "records were set aside"]
    gauges = {one.name: one.value for one in node.readings()}
    names = ("earshot_rebuilt_tables_total", "earshot_unfit_tables_total", "earshot_aside_tables")
    assert [gauges[name] for name in names] == [2, 1, 0]
    await node.backend.close()


# --- deletion and expiry --------------------------------------------------------------------------------------------


async def served(node: Node, *sessions: str) -> None:
    """Wait until the owners have noted that they serve; a clock turned before would mean that they were away."""
    await until(lambda: all(node.owners.serving(session).presence.served for session in sessions))


async def test_only_idle_sessions_expire(node: Node, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, used = new_id(), new_id()
    clock = home.clock
    await send(node, idle, STREAM)
    await send(node, used, STREAM)
    await served(node, idle, used)
    clock.now += IDLE_SECONDS
    assert (await send(node, used, Chunk("c", 0, sound(1))))[0].status == 200
    await until(lambda: view(node, used).head.windows)  # Audio that waits does not expire.
    sweep = mock.AsyncMock(wraps=node.session_workload.sweep)
    monkeypatch.setattr(node.session_workload, "sweep", sweep)
    # Two more sweeps have ended when the third begins.
    await until(lambda: sweep.await_count >= 3)
    # Exactly an hour is not more than an hour.
    assert node.sessions.view(idle) is not None
    clock.now += 1
    follower = node.sessions.follow(idle)
    await until(lambda: node.sessions.view(idle) is None)
    assert await follower.changed(60)
    follower.close()
    assert node.sessions.view(used) is not None
    clock.now += IDLE_SECONDS
    await until(lambda: node.sessions.view(used) is None)
    assert (await send(node, used, Chunk("c", 1, sound(1))))[0].status == 404


# --- retained records -----------------------------------------------------------------------------------------------


async def test_log_keeps_needed_audio_beyond_retention_and_is_trimmed_after_use(tmp_path: Path) -> None:
    """Neither needed audio nor anything of a partition that is being taken over is trimmed; parked records are."""
    home = Home(tmp_path)
    async with home.serving(idle_seconds=1e9) as node:
        session, data = new_id(), sound(2)
        at, parked = tp(COMMANDS, session), tp(COMMANDS_PARKED, session)
        log = log_of(node)
        keeper = Maintenance(log, floor=node.partitions.floor)
        await send(node, session, FILE)
        needed = log.end(at)
        await send(node, session, *uploads(data, 2))
        await log.append(*parked, None, b"parked")
        await until(lambda: noted(node, *at) == log.end(at))
        assert node.partitions.needed(at, 0, 99, 2) == [1, 2, 3]
        assert node.partitions.needed(at, 0, 99, 1) == [], "many references are not searched"
        assert node.partitions.needed(at, 0, 99, None)[:3] == [1, 2, 3]
        rows = node.owners.here[at.partition].rows
        assert rows.positions()[COMMANDS] == log.end(at)
        assert 0 < rows.applied.offset <= log.end(tp(CHANGELOG, session)), "no more than the changelog has"
        home.clock.now += 30 * DAY_MS / 1000
        await Maintenance(log, floor=lambda tp: None).round()
        assert (log.earliest(at), log.earliest(parked)) == (0, 1)
        await keeper.round()
        assert log.earliest(at) == node.partitions.floor(at) == needed
        await send(node, session, Sealed("s"))
        await until(lambda: view(node, session).head.finished)
        assert scores(node, session) == truth(data)
        await until(lambda: node.partitions.floor(at) == log.end(at))
        await keeper.round()
        assert log.earliest(at) == log.end(at)


async def test_idle_session_keeps_no_audio_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.embedded.maintenance.HOLE_RECORDS", 1)
    monkeypatch.setattr("streams.embedded.maintenance.TRIM_SECONDS", 0.01)
    home, data = Home(tmp_path), sound(2)
    idle = new_id()
    at = tp(COMMANDS, idle)
    used = next(session for session in iter(new_id, None) if tp(COMMANDS, session) == at)
    async with home.serving(idle_seconds=1e9) as node:
        log = log_of(node)
        partition = log._partitions[at]
        await send(node, idle, FILE, *uploads(data, 2))
        needed = range(1, log.end(at))
        await send(node, used, FILE, *uploads(data, 8), Sealed("s"))
        await until(lambda: view(node, used).head.finished)
        await until(lambda: [n for n in range(log.end(at)) if log.store.get(partition.key(n))] == [*needed])
    async with home.serving(idle_seconds=1e9) as node:
        log = log_of(node)
        assert [record.offset for record in log.read(at, 0, 99, 1 << 30)] == [*needed]
        await send(node, idle, Sealed("s"))
        await until(lambda: view(node, idle).head.finished)
        assert scores(node, idle) == truth(data)


async def finished(read: Callable[[], Any]) -> None:
    if inspect.isawaitable(found := read()):
        await found


async def test_node_without_read_lease_shows_nothing_and_accepts_audio(tmp_path: Path) -> None:
    async with Home(tmp_path).serving() as node:
        session, job, data = node.sessions.new_id(), node.jobs.new_id(), sound(4)
        await send(node, session, STREAM, *uploads(data, 2)[:1])
        await until(lambda: view(node, session).head.windows > 0)
        shown = view(node, session).head.windows
        node.owners.may_read = lambda: False
        query = ListQuery(STREAM.project)
        for read in (
            partial(node.sessions.view, session),
            partial(node.sessions.windows, session, 0, 1),
            partial(node.sessions.embeddings, session, 0, 1),
            partial(node.sessions.listed, query),
            partial(node.jobs.view, job),
            partial(node.jobs.portion, job, Service.SOUND, 0),
            partial(node.jobs.listed, query),
            partial(node.jobs.picture, job, 0),
            partial(anext, node.jobs.audio(job, 0, 1)),
            node.jobs.recording(job).__aenter__,
        ):
            with pytest.raises(Unavailable, match="may be outdated"):
                await finished(read)
        assert not node.sessions.coverage().here
        [verdict] = await send(node, session, uploads(data, 2)[1])
        store = node.owners.serving(session).sessions
        await until(lambda: session in store.behind)
        head = store.head(session)
        assert (verdict.status, head and head.windows) == (200, shown)
        node.owners.may_read = lambda: True
        await until(lambda: view(node, session).head.windows > shown)


async def test_audio_of_deleted_session_is_released_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionStore, "most_dropped", 1)
    monkeypatch.setattr("streams.folding.draft.ERASED_ROWS", 1)
    monkeypatch.setattr("streams.folding.head_store.TIDIED_ROWS", 2)
    async with Home(tmp_path).serving() as node:
        session = new_id()
        at = tp(COMMANDS, session)
        await send(node, session, FILE, *uploads(sound(2), 8))
        assert node.session_workload.audio.size
        await send(node, session, Deleted("d"))
        await until(lambda: node.partitions.floor(at) == log_of(node).end(at))
        assert node.session_workload.audio.size == 0


# --- assignments ----------------------------------------------------------------------------------------------------

ALL = Assignment(frozenset(range(PARTITIONS)))


async def next_change(node: Node, session: str) -> None:
    """Read changes until the partition is revoked."""
    follower = node.sessions.follow(session)
    while True:
        assert await follower.changed(60)


async def assign(node: Node, assignment: Assignment) -> None:
    """Give the node an assignment, and wait until it serves."""
    node.partitions.assign(assignment)
    await until(lambda: node.partitions.waits() is None)


async def test_revoked_partition_rejects_readers_and_kept_one_continues(node: Node) -> None:
    data = sound(2)
    going, staying = in_partition(1), in_partition(0)
    elsewhere = Assignment(frozenset({0}), urls={1: "http://there:1"})
    for session in (going, staying):
        await send(node, session, STREAM, *uploads(data, 2))
    gone, stays = (asyncio.create_task(next_change(node, session)) for session in (going, staying))
    await turn()  # They wait.
    owner = node.owners.here[0]
    node.partitions.assign(elsewhere)
    with pytest.raises(Unavailable, match="no longer serves it"):
        await asyncio.wait_for(gone, 60)
    assert node.ready() is None
    assert node.owners.here == {0: owner}
    assert going not in node.session_workload.analyser.sessions()
    assert node.sessions.owner(going) == "http://there:1"
    with pytest.raises(NotOwned, match="partition 1 is another node's"):
        await node.sessions.submit(going, Sealed("s"))
    assert (await send(node, staying, Sealed("s")))[0].status == 204
    assert not stays.done()
    stays.cancel()
    await assign(node, ALL)
    await send(node, going, Sealed("s"))
    for session in (going, staying):
        await until(partial(is_finished, node, session))
        assert scores(node, session) == truth(data)
    assert node.alive() is None


async def test_partition_moves_until_it_is_taken_over(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    session = in_partition(2)
    surveying, gate = asyncio.Event(), asyncio.Event()

    async def survey(owner: PartitionOwner) -> None:
        surveying.set()
        await gate.wait()

    await send(node, session, STREAM)
    node.partitions.assign(Assignment(frozenset({0, 1})))
    monkeypatch.setattr(node.job_workload, "survey", survey)
    node.partitions.assign(ALL)
    await asyncio.wait_for(surveying.wait(), 60)
    await until(lambda: node.partitions.waits() == "partition 2, 3: a look through its rows")
    assert node.ready() is None, "the others are served"
    with pytest.raises(Unavailable, match="partition 2 has no ready owner here: a look through its rows"):
        node.sessions.view(session)
    waiting = asyncio.create_task(node.sessions.owner_changed())
    await turn()  # It waits before the partition is served.
    assert node.sessions.is_moving(session)
    # A partition that is being revoked does not serve.
    node.partitions.assign(Assignment(frozenset({0, 1, 2})))
    gate.set()
    await waiting
    await until(lambda: not node.sessions.is_moving(session))
    assert (await send(node, session, Sealed("s")))[0].status == 204
    assert sorted(node.owners.here) == [0, 1, 2]
    monkeypatch.undo()
    await assign(node, ALL)
    assert node.alive() is None


async def test_table_that_fails_delays_no_expiry_elsewhere(
    node: Node, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [new_id(number, 4) for number in (0, 3)]
    failing = node.owners.here[0].sessions
    monkeypatch.setattr(failing, "due", mock.Mock(side_effect=DatabaseFailed("IO error: Too many open files")))
    for session in sessions:
        await send(node, session, STREAM)
    await served(node, sessions[1])
    home.clock.now += IDLE_SECONDS + 1
    await until(lambda: node.sessions.view(sessions[1]) is None)
    assert node.sessions.view(sessions[0]) is not None


async def test_node_without_partitions_is_ready_if_it_can_forward(node: Node) -> None:
    node.partitions.assign(Assignment(frozenset()))
    assert node.ready() == "this node has no partitions: there are more nodes than partitions"
    with pytest.raises(Unavailable, match="no partitions"):
        node.sessions.new_id()
    node.partitions.assign(Assignment(frozenset(), urls=dict.fromkeys(range(4), "http://there")))
    assert (node.ready(), node.sessions.host()) == (None, "http://there"), "it forwards"
    await assign(node, ALL)


async def test_project_session_limit_frees_when_sessions_end(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def open_session(node: Node) -> str:
        session = node.sessions.new_id()
        node.sessions.admit("p")
        assert (await node.sessions.submit(session, STREAM)).status == 200
        return session

    async with home.serving(project_sessions=2) as node:
        first, second = await open_session(node), await open_session(node)
        with pytest.raises(Unavailable, match="2 open sessions"):
            node.sessions.admit("p")
        node.sessions.admit("another")
        assert (await node.sessions.submit(first, Deleted("c"))).status == 204
        third = await open_session(node)
    # Another process counts existing sessions.
    async with home.serving(project_sessions=2) as node:
        with pytest.raises(Unavailable, match="2 open sessions"):
            node.sessions.admit("p")
        for session in (second, third):
            # A fully analysed session is not open, though it can be read.
            assert (await node.sessions.submit(session, Sealed("c"))).status == 204
            await until(lambda session=session: view(node, session).head.finished)  # type: ignore[misc]
        assert not any(owner.sessions.projects.count("p") for owner in node.owners)
        node.sessions.admit("p")


async def test_open_streams_of_a_project_are_known_by_name(node: Node) -> None:
    """Home Assistant hears about them before their first alarm."""
    barn = msgspec.structs.replace(STREAM, project="farm", file_name="barn", metadata={"floor": "1"})
    others = (
        msgspec.structs.replace(barn, file_name=None, metadata={}),
        msgspec.structs.replace(barn, file_name="gate"),
        msgspec.structs.replace(FILE, project="farm", file_name="clip.wav"),
        msgspec.structs.replace(barn, project="another"),
    )

    sessions = [node.sessions.new_id() for _ in (barn, *others)]
    for session, opened in zip(sessions, (barn, *others), strict=True):
        await send(node, session, opened)
    await send(node, sessions[2], Sealed("c"))
    assert node.session_workload.open_streams("farm") == {"barn": {"floor": "1"}, None: {}}
    assert node.session_workload.open_streams("nobody") == {}
    for number in range(150):
        await send(node, node.sessions.new_id(), msgspec.structs.replace(barn, file_name=f"camera {number}"))
    assert len(node.session_workload.open_streams("farm")) == 152, "all of a large house"
