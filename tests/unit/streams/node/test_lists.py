"""Lists of sessions and jobs, on a whole node and in one partition: content, cost, and recovery."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from streams.disk import DiskFull
from streams.jobs.job_store import JobStore
from streams.sessions.store import SessionStore
from tests.unit.streams.jobs.world import accepted
from tests.unit.streams.lists import listed
from tests.unit.streams.node.nodes import Home, send
from tests.unit.streams.sessions.rows import MemoryPartition, drafting
from tests.unit.streams.sessions.studio import FILE, STREAM
from tests.waiting import until
from topics import keys
from topics.folding import Arrival
from topics.jobs.rules import Entry, JobHead, JobState
from topics.keys import new_id
from topics.ports.lists import ListQuery
from topics.sessions.records import Chunk, Deleted, Opened, Sealed
from topics.sessions.rules import SessionHead

PROJECT = STREAM.project


async def test_list_reflects_session_changes(tmp_path: Path) -> None:
    """Over all partitions, newest first; a session that is sealed, failed, deleted or expired moves or disappears."""
    home = Home(tmp_path)
    async with home.serving(idle_seconds=3600.0, sweep_seconds=0.05) as node:
        ids = []
        for opened in (STREAM, FILE, STREAM, STREAM, STREAM):
            home.clock.now += 1
            ids.append(new_id())
            await send(node, ids[-1], opened)

        def read(**query: Any) -> list[int]:
            return [ids.index(id) for _, id, _ in node.sessions.listed(ListQuery(PROJECT, **query))]

        assert read() == [4, 3, 2, 1, 0]
        assert read(count=2) == [4, 3]
        await send(node, ids[1], Sealed("s"))
        await send(node, ids[3], Chunk("c", 0, b"odd"), Deleted("d"))
        assert (read(), read(states=("writable",)), read(states=("readonly",))) == ([4, 2, 1, 0], [4, 2, 0], [1])
        moment = int(home.clock.now * 1000)
        assert read(since_ms=moment - 3000) == [4, 2, 1]
        assert read(until_ms=moment - 3000) == [0]
        assert node.sessions.listed(ListQuery("another")) == []
        assert node.sessions.coverage().here == frozenset(range(node.owners.partitions))
        home.clock.now += 3601
        await until(lambda: read() == [])


# --- one partition --------------------------------------------------------------------------------------------------


def open_session(store: SessionStore, at: int, project: str = "p") -> str:
    id = new_id()
    with drafting(store) as draft:
        opened = Opened("c", "file", "audio/wav", project, 1000, 500)
        draft.put_request(id, opened, Arrival(0, at))
        draft.put_head(id, SessionHead("file", None, at, 0))
    return id


@pytest.fixture
def partition() -> MemoryPartition:
    return MemoryPartition()


@pytest.fixture
def store(partition: MemoryPartition) -> SessionStore:
    return SessionStore(partition)


def take_job(store: JobStore, at: int, state: JobState) -> str:
    id = new_id()
    with drafting(store) as draft:
        draft.put_request(id, accepted("u", 1), Arrival(0, at))
        entries = (Entry(accepted("u", 1).options.services[0]),)
        draft.put_head(id, JobHead(state, 0, at, "u", 1, created=at, entries=entries))
    return id


class Counted(MemoryPartition):
    """Counts the rows read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def get(self, key: bytes) -> bytes | None:
        self.read += 1
        return super().get(key)

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(lower, upper, limit):
            self.read += 1
            yield entry


def test_page_cost_depends_only_on_page_size() -> None:
    """A page of 20 reads as many rows among 100 jobs as among 500."""
    after = 199_960, "A" * 24
    queries = [ListQuery("p", **query) for query in ({}, {"since_ms": 150_000}, {"after": after})]
    queries.append(ListQuery("p", ("accepted",)))
    costs = []
    for count in (100, 500):
        partition = Counted()
        store = JobStore(partition)
        for number in range(count):
            take_job(store, 200_000 - number, JobState.ACCEPTED if number % 2 else JobState.COMPLETED)
        for query in queries:
            partition.read = 0
            store.heads.clear()
            assert len(list(islice(store.listed(query), 20))) == 20
            costs.append(partition.read)
    for few, many in zip(costs[:4], costs[4:], strict=True):
        assert many <= few <= 20 * 3 + 6


def test_listing_separates_projects_and_fills_no_head_cache(store: SessionStore) -> None:
    ids = {project: open_session(store, 5, project) for project in ("p", "pp", "p\x01", "", "\u00fcber")}
    store.heads.clear()
    for project, id in ids.items():
        assert listed(store, project) == [id]
    assert not store.heads


def test_unreadable_row_is_skipped_and_kept(partition: MemoryPartition, store: SessionStore) -> None:
    bad, there = (open_session(store, at) for at in (1, 2))
    partition.rows[store.row_key(bad, keys.HEAD)] = b"\x07of a later version"
    store.heads.clear()
    assert listed(store, "p") == [there]
    assert sum(key[:1] == keys.SESSION_LIST for key in partition.rows) == 2


def test_full_table_can_still_be_listed(
    partition: MemoryPartition, store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = (open_session(store, at) for at in (1, 2))
    partition.rows.pop(store.row_key(gone, keys.HEAD))
    store.heads.clear()

    def full(changes: Mapping[bytes, bytes | None]) -> None:
        raise DiskFull

    monkeypatch.setattr(partition, "write", full)
    assert listed(store, "p") == [there]


def test_session_without_opening_is_not_listed(partition: MemoryPartition, store: SessionStore) -> None:
    """Records of a log with losses: it can be deleted, and nothing breaks."""
    id = new_id()
    with drafting(store) as draft:
        draft.put_head(id, SessionHead("file", None, 1, 0))
    assert not [key for key in partition.rows if key[:1] == keys.SESSION_LIST]
    with drafting(store) as draft:
        draft.erase(id)
    assert store.head(id) is None
