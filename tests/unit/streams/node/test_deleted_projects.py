"""Of a deleted project nothing is found by id, nothing is created, and no row of any kind is left."""

from collections.abc import Mapping
from unittest import mock

import msgspec
import pytest

from streams.node import deleted_projects
from streams.node.node import Node
from tests.unit.streams.node.nodes import Home, send, view
from tests.unit.streams.node.test_jobs import accepted
from tests.unit.streams.sessions.studio import FILE, STREAM
from tests.waiting import until
from topics import keys
from topics.errors import Unauthorized, Unavailable
from topics.jobs.records import Part
from topics.keys import new_id
from topics.sessions.records import Opened, Sealed

GONE, KEPT = "gone" * 6, "kept" * 6


def of(project: str, opened: Opened) -> Opened:
    return msgspec.structs.replace(opened, project=project)


async def fill(node: Node, project: str, sessions: int = 3) -> list[str]:
    """Create sessions, of which a third is sealed, and a job; return the sessions' ids."""
    ids = [new_id() for _ in range(sessions)]
    for number, id in enumerate(ids):
        await send(node, id, of(project, (STREAM, FILE)[number % 2]), *([Sealed(f"s{id}")] if number % 3 == 0 else []))
    job = node.jobs.new_id()
    await node.jobs.upload(job, Part(job, "u", 0, b"audio"), project)
    await node.jobs.submit(job, msgspec.structs.replace(accepted(), parts=1, project=project))
    assert node.jobs.view(job) is not None
    return ids


def rows(node: Node) -> Mapping[str, int]:
    """Count the rows of all kinds that name each project."""
    tables = [owner.rows for owner in node.owners.all_serving()]
    found = [key + value for table in tables for key, value in table.scan(keys.SESSION, b"\xff")]
    return {project: sum(project.encode() in row for row in found) for project in (GONE, KEPT)}


async def test_round_repeats_what_failed_and_leaves_no_row_of_the_project(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with home.serving() as node:
        (gone, *_) = await fill(node, GONE, deleted_projects.TOGETHER + 10)
        (kept, *_) = await fill(node, KEPT)
        before = rows(node)
        node.deleted_projects.learn([GONE])
        for workload in node.workloads:
            monkeypatch.setattr(workload, "remove", mock.AsyncMock(side_effect=Unavailable("the log is full")))
        await node.deleted_projects.remove()
    async with home.serving() as node:
        assert rows(node) == before, "as if it was killed before the round"
        assert node.deleted_projects.learn([GONE, "unheard of"]) == [GONE, "unheard of"]
        assert node.deleted_projects.learn([GONE]) == []
        assert node.sessions.view(gone) is None
        with pytest.raises(Unauthorized):
            await send(node, new_id(), of(GONE, STREAM))
        for _ in range(2):
            await node.deleted_projects.remove()
            await until(lambda: not rows(node)[GONE])
        assert rows(node)[KEPT] == before[KEPT] > 0
        assert view(node, kept).opened.project == KEPT


async def test_settled_project_is_looked_for_no_more(home: Home, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.deleted_projects.learn([GONE])
    stores = [store for workload in node.workloads for store in workload.all_serving()]
    await node.deleted_projects.remove()
    assert not any(store.empty_projects for store in stores), "a command of it may be on its way to the log"
    monkeypatch.setattr(deleted_projects, "SETTLED_SECONDS", -1.0)
    await node.deleted_projects.remove()
    assert all(store.empty_projects == {GONE} for store in stores)
