"""A node whose tables' disk is full: reads go on, writes are refused, and nothing that the log took is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.disk import DiskDatabase, DiskFull
from streams.node.node import Node
from tests.unit.streams.node.nodes import Home, log_of, noted, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics import record_codec
from topics.catalog import COMMANDS
from topics.keys import new_id
from topics.sessions.records import Chunk


def tables(node: Node) -> list[DiskDatabase]:
    return [owner.rows._database for owner in node.owners]


async def test_full_tables_refuse_writes_and_take_up_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
                # One that was on its way when the disk was found full.
                await log_of(node).append(*at, session.encode(), record_codec.encode(Chunk("c2", 1, sound(2))))
                await until(lambda: "full" in (node.ready() or ""))
                looked = len(asked)
                await until(lambda: len(asked) >= looked + 2 * len(tables(node)))
                assert view(node, session).head.next == 1
                assert node.alive() is None
            await until(lambda: view(node, session).head.cursor.chunks == 2)
            await until(lambda: node.ready() is None)
            await send(node, session, Chunk("c3", 2, sound(3)))
            await until(lambda: view(node, session).head.cursor.chunks == 3)
            await until(lambda: (noted(node, *at) or 0) >= 4)
            assert node.session_workload.results.windows == view(node, session).head.windows
        assert [line["event"] for line in lines if "disk" in line["event"]] == ["disk.full", "disk.has_room"]
    assert home.failures == 0
    async with home.serving() as node:
        assert view(node, session).head.cursor.chunks == 3
