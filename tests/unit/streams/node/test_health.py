"""What dies turns the health check red, tells the owner once, and acknowledges nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from faust.types import TP

from streams.driver.table import PartitionRows
from tests.unit.streams.node.nodes import Home, committed, log_of, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics import record_codec
from topics.catalog import COMMANDS
from topics.errors import Unavailable
from topics.keys import new_id
from topics.sessions.records import Chunk


def test_a_table_that_cannot_be_written_stops_the_node_and_the_next_one_does_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, session = Home(tmp_path), new_id()

    def broken(rows: PartitionRows, changes: object) -> None:
        raise OSError("no space left on device")

    async def scene() -> None:
        at = tp(COMMANDS, session)
        async with home.serving() as node:
            await send(node, session, STREAM)
            await until(lambda: committed(node, *at) == 1)
            monkeypatch.setattr(PartitionRows, "write", broken)
            await log_of(node).append(*at, session.encode(), record_codec.encode(Chunk("c", 0, sound(1))))
            await until(node.alive)
            assert node.alive() == node.ready() == "OSError: no space left on device"
            assert home.failures == 1
        monkeypatch.undo()
        async with home.serving() as node:
            assert view(node, session).head.next == 1
            await until(lambda: view(node, session).head.windows == 1)

    asyncio.run(scene())


def test_a_service_of_the_tree_that_crashes_turns_the_node_red_before_anything_stops(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def scene() -> None:
        async with home.serving() as node:
            assert node.alive() is None
            await node.application._fetcher.crash(RuntimeError("the fetcher died"))
            assert node.alive() == "RuntimeError: the fetcher died"
            assert node.ready() == "RuntimeError: the fetcher died"
            assert home.failures == 1
            await node.application.consumer.crash(RuntimeError("another"))
            assert home.failures == 1

    asyncio.run(scene())


HELD = TP(COMMANDS, 0)


def test_records_that_wait_too_long_turn_the_node_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is watched, not life: an agent may hang without an error."""
    home = Home(tmp_path)

    async def scene() -> None:
        node = home.node()
        consumer = node.application.consumer
        now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: now)
        assert node.alive() is None
        consumer._deliveries[HELD].add(0, 5)
        now += 59
        assert node.alive() is None
        now += 2
        assert "in work for 61 s" in (node.alive() or "")
        consumer._deliveries[HELD].finish(0, 5)
        assert node.alive() is None
        await node.backend.close()

    asyncio.run(scene())


def test_a_background_task_that_dies_turns_the_node_red(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def die() -> None:
        raise ValueError("a bug in the sweeper")

    async def scene() -> None:
        node = home.node()
        node._spawn(die(), "sweeper")
        await asyncio.sleep(0.01)
        assert node.alive() == "ValueError: a bug in the sweeper"
        assert home.failures == 1
        await node.backend.close()

    asyncio.run(scene())


def test_a_node_that_is_about_to_stop_sends_readers_away_and_takes_what_was_begun(tmp_path: Path) -> None:
    async def scene() -> None:
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

    asyncio.run(scene())
