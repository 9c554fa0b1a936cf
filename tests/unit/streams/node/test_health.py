"""What dies turns the health check red, tells the owner once, and acknowledges nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.node import node as module
from streams.node.lane import PARKED_AT_LEAST
from streams.node.owner import PartitionOwner
from streams.tables.rows import PartitionRows
from tests.unit.streams.node.nodes import Home, log_of, noted, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics import record_codec
from topics.catalog import COMMANDS, TopicPartition
from topics.errors import Unavailable
from topics.keys import new_id
from topics.sessions.records import Chunk


async def test_a_table_that_cannot_be_written_stops_the_node_and_the_next_one_does_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, session = Home(tmp_path), new_id()

    def broken(rows: PartitionRows, changes: object) -> None:
        raise OSError("no space left on device")

    at = tp(COMMANDS, session)
    async with home.serving() as node:
        await send(node, session, STREAM)
        await until(lambda: noted(node, *at) == 1)
        monkeypatch.setattr(PartitionRows, "write", broken)
        await log_of(node).append(*at, session.encode(), record_codec.encode(Chunk("c", 0, sound(1))))
        await until(node.alive)
        assert node.alive() == node.ready() == "OSError: no space left on device"
        assert home.failures == 1
    monkeypatch.undo()
    async with home.serving() as node:
        assert view(node, session).head.next == 1
        await until(lambda: view(node, session).head.windows == 1)


async def test_a_wait_without_an_end_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is watched, not life: a log may be silent without an error."""
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.05)
    home = Home(tmp_path)
    node = home.node()
    node.owners.here[3] = PartitionOwner(3)
    with capture_logs() as lines:
        node.tasks.spawn(node._watch(), "watch")
        await until(node.alive)
    assert "nothing has come of waiting for partition 3: its table" in (node.alive() or "")
    assert {line["event"] for line in lines} == {"node.waiting", "node.failed"}
    assert home.failures == 1
    await node.backend.close()


async def test_a_partition_that_was_stopped_is_told_of_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it: a restart would find the same records."""
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.05)
    home = Home(tmp_path)
    await home.append(TopicPartition(COMMANDS, 0), b"k", *[b"\x02later"] * PARKED_AT_LEAST)
    async with home.serving() as node:
        await until(lambda: "cannot be read" in (node.ready() or ""))
        await asyncio.sleep(0.2)
        assert node.alive() is None
    assert home.failures == 0


async def test_a_background_task_that_dies_turns_the_node_red(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def die() -> None:
        raise ValueError("a bug in the sweeper")

    node = home.node()
    node.tasks.spawn(die(), "sweeper")
    await asyncio.sleep(0.01)
    assert node.alive() == "ValueError: a bug in the sweeper"
    assert home.failures == 1
    await node.backend.close()


async def test_a_node_that_is_about_to_stop_sends_readers_away_and_takes_what_was_begun(tmp_path: Path) -> None:
    async with Home(tmp_path).serving() as node:
        session = node.sessions.new_id()
        await send(node, session, STREAM)
        follower = node.sessions.follow(session)
        node.withdraw()
        for reader in (follower, node.sessions.follow(session)):
            with pytest.raises(Unavailable):
                await reader.changed(5)
        assert (node.ready(), node.alive()) == ("the node is about to stop", None)
        assert [verdict.status for verdict in await send(node, session, Chunk("c", 0, sound(1)))] == [200]
