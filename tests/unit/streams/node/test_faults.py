"""Faults of a node: permanent ones fail the health check, temporary ones are retried, and work continues."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from structlog.testing import capture_logs

from streams.disk import DiskDatabase, DiskFull
from streams.folding import retry
from streams.node import files_watch
from streams.node import node as module
from streams.node.node import Node
from streams.node.owner import PartitionOwner
from streams.sessions.analyser import ATTEMPTS
from streams.tables.partition_rows import PartitionRows
from tests.unit.streams.embedded.conftest import FailingRocks
from tests.unit.streams.node.nodes import Home, is_finished, log_of, noted, scores, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound, truth
from tests.waiting import until
from topics import record_codec
from topics.catalog import COMMANDS
from topics.errors import Unavailable
from topics.keys import new_id
from topics.sessions.records import Chunk, Sealed

pytestmark = pytest.mark.slow


async def test_unwritable_table_stops_node_and_next_node_takes_over(home: Home) -> None:
    session = new_id()
    at = tp(COMMANDS, session)
    async with home.serving() as node:
        await send(node, session, STREAM)
        await until(lambda: noted(node, *at) == 1)
        with mock.patch.object(PartitionRows, "write", side_effect=OSError("no space left on device")):
            await log_of(node).append(*at, session.encode(), record_codec.encode(Chunk("c", 0, sound(1))))
            await until(node.alive)
        assert node.alive() == node.ready() == "OSError: no space left on device"
        assert home.failures == 1
    async with home.serving() as node:
        assert view(node, session).head.next == 1
        await until(lambda: view(node, session).head.windows == 1)


async def test_takeover_without_progress_fails_node_beside_others_that_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reasons of all partitions together changed with every step of one, and hid another that hung."""
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.1)
    home = Home(tmp_path)
    node = home.node()
    queued, busy, stuck = (node.owners.here.setdefault(number, PartitionOwner(number)) for number in (3, 2, 1))
    queued.queued = True

    def step() -> str | None:
        busy.steps += 1
        return node.alive()

    with capture_logs() as lines:
        node.tasks.spawn(node._watch(), "watch")
        await until(step)
        assert (node.alive() or "").startswith("Unavailable: partition 1: no progress in")
        assert {line["event"] for line in lines} == {"node.waiting", "node.failed"}
        del node.owners.here[stuck.number], lines[:]
        node.tasks.failure = None
        node.tasks.spawn(node._watch(), "watch")
        await until(lambda: step() or len(lines) > 30)
    assert (node.alive(), home.failures) == (None, 1), "it waits for its turn, or makes progress"
    await node.backend.close()


async def test_withdrawn_node_rejects_readers_but_accepts_commands(node: Node) -> None:
    session = node.sessions.new_id()
    await send(node, session, STREAM)
    follower = node.sessions.follow(session)
    node.withdraw()
    for reader in (follower, node.sessions.follow(session)):
        with pytest.raises(Unavailable):
            await reader.changed(60)
    assert (node.ready(), node.alive()) == ("the node is about to stop", None)
    assert [verdict.status for verdict in await send(node, session, Chunk("c", 0, sound(1)))] == [200]


def tables(node: Node) -> list[DiskDatabase]:
    return [owner.rows._database for owner in node.owners]


async def test_full_tables_reject_writes_until_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads go on, and nothing on the log is lost."""
    home, session, asked = Home(tmp_path), new_id(), list[DiskDatabase]()
    at = tp(COMMANDS, session)
    async with home.serving() as node:
        with capture_logs() as lines:
            await send(node, session, STREAM, Chunk("c0", 0, sound(1)))
            await until(lambda: view(node, session).head.windows == 1)
            with monkeypatch.context() as patch:
                patch.setattr(DiskDatabase, "_has_room", lambda database: bool(asked.append(database)))  # type: ignore[func-returns-value]
                for database in tables(node):
                    database.full = "No space left on device"
                with pytest.raises(DiskFull):
                    await send(node, session, Chunk("c1", 1, sound(2)))
                # It was in flight when the disk was found full.
                await log_of(node).append(*at, session.encode(), record_codec.encode(Chunk("c2", 1, sound(2))))
                await until(lambda: "writes are refused: the disk is full" in node.notes())
                assert node.ready() is None, "reads go on"
                looked = len(asked)
                await until(lambda: len(asked) >= looked + 2 * len(tables(node)))
                assert view(node, session).head.next == 1
                assert node.alive() is None
            await until(lambda: view(node, session).head.cursor.chunks == 2)
            await until(lambda: not node.notes())
            await send(node, session, Chunk("c3", 2, sound(3)))
            await until(lambda: view(node, session).head.cursor.chunks == 3)
            await until(lambda: (noted(node, *at) or 0) >= 4)
            assert node.session_workload.writer.windows == view(node, session).head.windows
            await until(lambda: any(line["event"] == "disk.has_room" for line in lines))
        assert [line["event"] for line in lines if "disk" in line["event"]] == ["disk.full", "disk.has_room"]
    assert home.failures == 0
    async with home.serving() as node:
        assert view(node, session).head.cursor.chunks == 3


async def test_temporary_log_read_failure_fails_no_session(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.01)
    session, data = new_id(), sound(5)
    database: Any = log_of(node).store._db
    said = "IO error: While open a file for random read: /data/log/000012.blob: Too many open files"
    # More often than an analysis is retried that fails by itself.
    database.rocks = failing = FailingRocks(database.rocks, "get", said, times=2 * ATTEMPTS)
    node.session_workload.audio.limit = 0
    await send(node, session, STREAM, Chunk("c0", 0, data), Sealed("s"))
    await until(lambda: is_finished(node, session))
    assert failing.times == 0
    assert scores(node, session) == truth(data)
    assert view(node, session).head.error is None


async def test_agent_exception_fails_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    async with home.serving() as node:

        async def fail(sessions: list[str]) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(node.session_workload.analyser, "chunks_of", fail)
        node.session_workload.analyser.enqueue(new_id())
        await until(lambda: node.alive() is not None)
        assert (node.alive(), home.failures) == ("RuntimeError: a bug", 1)


async def test_idle_agents_stop_without_cancellation(node: Node) -> None:
    """They need no cancellation: Faust would first wait three seconds for an idle actor with its own queue."""
    tasks = [actor.actor_task for agent in node.app.agents.values() for actor in agent._actors]
    await node.app.agents.stop()
    assert tasks
    assert not any(task.cancelled() for task in tasks)


def replace(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.touch()
    fresh.replace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: shutil.rmtree(data / "log" / "log"), "log was removed"),
        (lambda data: (data / "log").rename(data / "away"), "log was removed"),
        (lambda data: (data / "earshot.db").unlink(), "earshot.db was removed"),
        (lambda data: replace(data / "earshot.db"), "earshot.db was replaced"),
    ],
    ids=["log removed", "directory moved away", "database removed", "database replaced"],
)
async def test_removed_or_replaced_file_fails_node_and_rejects_commands(
    tmp_path: Path, change: Callable[[Path], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_watch, "POLL_SECONDS", 0.01)
    look = mock.Mock(wraps=files_watch._look)
    monkeypatch.setattr(files_watch, "_look", look)
    database = tmp_path / "earshot.db"
    database.touch()
    home, session = Home(tmp_path), new_id()
    async with home.serving(files=(tmp_path / "log" / "log", database, tmp_path / "never")) as node:
        await send(node, session, STREAM, Chunk("c0", 0, sound(1)))
        database.write_bytes(b"more")
        await until(lambda: look.call_count > 1)  # It has seen what is there.
        with capture_logs() as lines:
            change(tmp_path)
            await until(node.alive)
        # A sentence without a traceback.
        assert [line["exc_info"] for line in lines if line["event"] == "node.failed"] == [None]
        assert f"{said} while the service runs" in (node.ready() or "")
        with pytest.raises(Unavailable, match="has failed and is about to stop"):
            await send(node, session, Chunk("c1", 1, sound(1)))
    assert home.failures == 1
