"""Restarts: on the existing tables, without them, and on tables of another log."""

import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from structlog.testing import capture_logs

from streams.node import partitions
from streams.node.node import Node
from streams.node.takeover import Takeover
from tests.unit.streams.node.nodes import Home, in_partition, is_finished, log_of, noted, scores, send, tp, view
from tests.unit.streams.sessions.studio import FILE, STREAM, sound, truth
from tests.waiting import until
from topics import keys, record_codec
from topics.catalog import CHANGELOG, COMMANDS
from topics.keys import new_id
from topics.sessions.records import Chunk, Deleted, Sealed


def rows(node: Node) -> list[dict[bytes, bytes]]:
    return [dict(owner.rows.scan(b"\x01", b"\x03")) for owner in node.owners]


def of(stored: list[dict[bytes, bytes]], session: str) -> list[tuple[bytes, bytes]]:
    prefix = keys.row_key(keys.SESSION, session, b"")
    return sorted(row for part in stored for row in part.items() if row[0].startswith(prefix))


@pytest.mark.slow
async def test_restart_with_and_without_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, data = Home(tmp_path), sound(3)
    done, file, gone, stream, late = (new_id() for _ in range(5))
    async with home.serving() as node:
        await send(node, done, STREAM, Chunk("c", 0, data), Sealed("s"))
        await send(node, file, FILE, Chunk("c", 0, data[:48_000]))
        await send(node, gone, STREAM, Chunk("c", 0, data))
        await send(node, stream, STREAM, Chunk("c", 0, data[:48_000]))
        await until(lambda: view(node, done).head.finished and view(node, stream).head.windows)
        await until(lambda: view(node, gone).head.windows == 5)
        monkeypatch.setattr(node.session_workload.analyser, "enqueue", lambda session: None)
        await send(node, late, STREAM, Chunk("c", 0, data), Sealed("s"))
        assert view(node, late).head.in_progress
        stored = rows(node)
    # Everything is restored from the changelog; new records are folded before the node serves.
    shutil.rmtree(home.tables)
    for session, *commands in (
        (gone, Deleted("d")),
        (file, Chunk("c", 1, data[48_000:]), Sealed("s")),
        (stream, Chunk("c", 1, data[48_000:])),
    ):
        await home.append(tp(COMMANDS, session), session.encode(), *map(record_codec.encode, commands))
    async with home.starting() as node:
        assert (node.ready() or "").startswith("partition 0, 1, 2, 3: ")
        await asyncio.wait_for(node.served.wait(), 60)
        assert node.notes() == ["a table was rebuilt"]
        assert {one.reason for one in node.partitions.tables.rebuilt} == {"its files were missing"}
        assert node.ready() is None
        assert node.sessions.view(gone) is None
        assert view(node, file).head.next == view(node, stream).head.next == 2
        assert of(rows(node), done) == of(stored, done)
        await send(node, stream, Sealed("s"))
        for session in (file, stream, late):
            await until(partial(is_finished, node, session))
            assert scores(node, session) == truth(data)
    async with home.serving() as node:
        assert node.notes() == []
        assert node.sessions.view(gone) is None
        assert {scores(node, session) for session in (done, file, stream, late)} == {truth(data)}
        log = log_of(node)
        at = tp(COMMANDS, file)
        await until(lambda: noted(node, *at) == log.end(at))


async def test_tables_of_equally_long_other_log_are_set_aside(tmp_path: Path) -> None:
    here, other = Home(tmp_path / "here"), Home(tmp_path / "other")
    mine, foreign = in_partition(0), in_partition(0)
    for home, session in (here, mine), (other, foreign):
        home.directory.mkdir()
        async with home.serving() as node:
            await send(node, session, FILE)
    shutil.rmtree(here.tables)
    shutil.copytree(other.tables, here.tables)
    with capture_logs() as lines:
        async with here.serving() as node:
            assert node.sessions.view(foreign) is None
            assert view(node, mine).head.kind == "file"
            assert "damaged tables were set aside" in node.notes()
    assert {line["reason"] for line in lines if line["event"] == "table.rebuilt"} == {"it is of another log"}
    async with here.serving() as node:
        assert "a table was rebuilt" not in node.notes()


async def test_erasure_waits_for_partitions_that_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, released, run = Home(tmp_path), asyncio.Event(), Takeover.run

    async def later(*arguments: Any) -> None:
        await released.wait()
        await run(*arguments)

    monkeypatch.setattr(Takeover, "run", later)
    async with home.starting() as node:
        erased = list[bool]()
        await until(lambda: all(owner.has_table for owner in node.owners))
        for owner in node.owners:
            monkeypatch.setattr(owner.rows, "erase", lambda: erased.append(node.served.is_set()))
        round_ = asyncio.ensure_future(node.erase())
        await asyncio.sleep(0.1)
        assert not erased
        released.set()
        await round_
        assert erased == [True] * len(list(node.owners))


async def test_deletions_that_a_crash_kept_from_the_changelog_are_logged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the changelog would keep what was deleted."""
    home, session = Home(tmp_path), new_id()
    async with home.serving() as node:
        await send(node, session, STREAM, Chunk("c", 0, sound(3)))
        await until(lambda: view(node, session).head.windows)
        rows = node.owners.serving(session).rows
        monkeypatch.setattr(rows, "_writer", mock.Mock())
        monkeypatch.setattr(node.partitions, "_note_positions", mock.AsyncMock())
        await send(node, session, Deleted("d"))
    async with home.serving() as node:
        await log_of(node).flush()
        records = log_of(node).read(tp(CHANGELOG, session), 0, 1000, 10**9)
        prefix = keys.row_key(keys.SESSION, session, b"")
        last = {record.key: record.value for record in records if record.key and record.key.startswith(prefix)}
    assert last
    assert set(last.values()) == {None}


async def test_positions_are_noted_soon_after_a_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded again without its rows, a deletion may lose what was to be billed."""
    home, session = Home(tmp_path), new_id()
    async with home.serving() as node:
        monkeypatch.setattr(partitions, "NOTE_SECONDS", 600.0)
        monkeypatch.setattr(partitions, "DELETION_SECONDS", 0.005)
        owner = node.owners.serving(session)
        await send(node, session, STREAM)
        await asyncio.sleep(0.2)
        before = owner.durable.get(COMMANDS, 0)
        await send(node, session, Deleted("d"))
        await until(lambda: owner.durable.get(COMMANDS, 0) > before)
        assert not owner.rows.has_deletions
