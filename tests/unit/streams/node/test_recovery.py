"""Restarts: on the existing tables, without them, and on tables of another log."""

import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams.node import partitions
from streams.node.node import Node
from streams.node.takeover import Takeover
from tests.unit.streams.node.nodes import Home, is_finished, log_of, noted, scores, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound, truth
from tests.waiting import turn, until
from topics import keys, record_codec
from topics.catalog import COMMANDS
from topics.keys import new_id
from topics.sessions.records import Chunk, Deleted, Sealed


def rows(node: Node) -> list[dict[bytes, bytes]]:
    return [dict(owner.rows.scan(b"\x01", b"\x03")) for owner in node.owners]


def of(stored: list[dict[bytes, bytes]], session: str) -> list[tuple[bytes, bytes]]:
    prefix = keys.row_key(keys.SESSION, session, b"")
    return sorted(row for part in stored for row in part.items() if row[0].startswith(prefix))


@pytest.mark.slow
async def test_missing_tables_are_rebuilt_and_noted_once(tmp_path: Path) -> None:
    home, data = Home(tmp_path), sound(3)
    done, late = new_id(), new_id()
    commands = STREAM, Chunk("c", 0, data), Sealed("s")
    async with home.serving() as node:
        await send(node, done, *commands)
        await until(lambda: is_finished(node, done) and not view(node, done).head.unmetered)
        stored = rows(node)
    shutil.rmtree(home.tables)
    await home.append(tp(COMMANDS, late), late.encode(), *map(record_codec.encode, commands))
    async with home.starting() as node:
        assert (node.ready() or "").startswith("partition 0, 1, 2, 3: ")
        await asyncio.wait_for(node.served.wait(), 60)
        assert node.notes() == ["a table was rebuilt"]
        assert {one.reason for one in node.partitions.tables.rebuilt} == {"its files were missing"}
        assert node.ready() is None
        assert of(rows(node), done) == of(stored, done)
        await until(partial(is_finished, node, late))
    async with home.serving() as node:
        assert node.notes() == []
        assert {scores(node, session) for session in (done, late)} == {truth(data)}
        log = log_of(node)
        at = tp(COMMANDS, late)
        await until(lambda: noted(node, *at) == log.end(at))


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
        await turn()
        assert not erased
        released.set()
        await round_
        assert erased == [True] * len(list(node.owners))


async def test_positions_are_noted_soon_after_a_deletion(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded again without its rows, a deletion may lose what was to be billed."""
    session = new_id()
    monkeypatch.setattr(partitions, "NOTE_SECONDS", 600.0)
    monkeypatch.setattr(partitions, "DELETION_SECONDS", 0.005)
    owner = node.owners.serving(session)
    await send(node, session, STREAM)
    noted = owner.noted
    await send(node, session, Deleted("d"))
    await until(lambda: owner.noted is not noted and owner.durable == owner.noted)
    assert not owner.rows.has_deletions
