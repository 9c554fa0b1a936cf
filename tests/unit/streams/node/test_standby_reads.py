"""Reads while an owner is away: from tables that have all of the changelog, and nothing that was deleted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from streams.folding.followers import Followers
from streams.jobs.job_store import JobStore
from streams.node import standby_reads as module
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.standby_reads import NodeStandby, StandbyJobs, StandbyReads, StandbySessions
from streams.sessions.store import SessionStore
from streams.tables.partition_rows import PartitionRows, encode_positions
from tests.unit.streams.jobs.world import accepted
from tests.unit.streams.node.test_standbys import House
from tests.waiting import turn, until
from topics import keys
from topics.catalog import CHANGELOG, COMMANDS, FOLDED, TopicPartition
from topics.errors import Damaged, NotOwned, Unavailable
from topics.jobs.options import Service
from topics.jobs.rules import JobHead, JobState
from topics.rows import encode
from topics.sessions.records import Cursor, Opened
from topics.sessions.rows import Block, Newest, stored
from topics.sessions.rules import SessionHead

PARTITIONS = 4
NUMBER = 1
SESSION = keys.new_id(NUMBER, PARTITIONS)
JOB = keys.new_id(NUMBER, PARTITIONS)
OPENED = Opened("open", "stream", "audio/wav", "p", 1000, 500, model="m")
HEAD = SessionHead("stream", None, 1, 0, next=2)
AT = TopicPartition(CHANGELOG, NUMBER)
#: Each window has the scores of one tag.
TAGS = ("tag",)


def newest(windows: int, chunks: int, *, finished: bool = False) -> bytes:
    return encode(Newest(windows, Cursor(chunks), finished, 1, (), Block("m", bytes(windows))))


def of_session(windows: int = 2, *, head: SessionHead = HEAD, finished: bool = False) -> list[tuple[bytes, bytes]]:
    store = SessionStore(mock.Mock())
    return [
        (store.row_key(SESSION, keys.REQUEST), encode(OPENED)),
        (store.row_key(SESSION, keys.HEAD), encode(stored(head))),
        (store.row_key(SESSION, keys.NEWEST), newest(windows, 2, finished=finished)),
    ]


class Node:
    """A node that stands by for one partition, and its reads."""

    def __init__(self, house: House) -> None:
        self.house, self.log = house, house.log
        self.owners = Owners(PARTITIONS)
        self.deleted: set[str] = set()
        self.reads = StandbyReads(self.owners, house.standbys, house.log)
        models: Any = mock.Mock(tags=lambda model: TAGS)
        ports: Any = (self.owners, mock.Mock(), Followers(), models, self.deleted, 9, None, mock.Mock(), mock.Mock())
        self.standby = NodeStandby(self.reads, StandbySessions(self.reads, *ports), StandbyJobs(self.reads, *ports))

    @property
    def rows(self) -> PartitionRows:
        rows = self.house.standbys.get(NUMBER)
        assert rows is not None
        return rows

    def log_rows(self, *rows: tuple[bytes, bytes | None], epoch: int = 1) -> None:
        """Have the owner log rows, which the stand-by does not have yet."""
        for key, value in rows:
            self.log.add(CHANGELOG, NUMBER, key, value, epoch)

    def apply(self) -> None:
        """Have the stand-by apply all that is logged."""
        if new := self.log.records[AT][self.rows.applied.offset :]:
            self.house.follower.apply(AT, new)

    def take_over(self) -> PartitionOwner:
        owner = self.owners.here[NUMBER] = PartitionOwner(NUMBER, PARTITIONS)
        return owner


@pytest.fixture
def node(tmp_path: Path, loop: asyncio.Runner) -> Iterator[Node]:
    house = House(tmp_path)
    loop.run(house.start())
    loop.run(house.keep(NUMBER))
    yield Node(house)
    loop.run(house.stop())


async def test_stand_by_is_read_once_it_has_what_the_changelog_had(node: Node) -> None:
    node.log_rows(*of_session())
    reading = asyncio.create_task(node.standby.as_of(SESSION))
    await until(lambda: node.log.asks)
    await turn()
    assert not reading.done(), "the table is behind"
    node.apply()
    assert await reading == node.log.now
    view = node.standby.sessions.view(SESSION)
    assert view is not None
    assert (view.opened, view.head.windows, view.standby) == (OPENED, 2, True)
    assert [windows.scores for windows in node.standby.sessions.windows(SESSION, 1, 8)] == [b"\0"]


async def test_stand_by_that_stays_behind_is_not_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REACH_SECONDS", 0.05)
    node.log_rows(*of_session())
    with pytest.raises(Unavailable, match="behind its changelog"):
        await node.standby.as_of(SESSION)


async def test_end_is_asked_for_after_each_call(node: Node) -> None:
    """Two questions are enough for any number of readers: what was confirmed before a call is in its answer."""
    asked = [asyncio.create_task(node.standby.as_of(SESSION)) for _ in range(9)]
    await until(lambda: node.log.asks == 1)
    asked += [asyncio.create_task(node.standby.as_of(SESSION)) for _ in range(9)]
    assert await asyncio.gather(*asked) == [node.log.now] * 18
    assert node.log.asks == 2
    node.log.faults = [Unavailable("the brokers are away")]
    with pytest.raises(Unavailable, match="are away"):
        await node.standby.as_of(SESSION)


async def test_table_of_another_log_is_not_read(node: Node) -> None:
    node.log_rows(*of_session())
    node.apply()
    lost = node.log.records.pop(AT)
    with pytest.raises(Unavailable, match="another log"):
        await node.standby.as_of(SESSION)
    node.log.records[AT] = lost
    node.log.lost[NUMBER] = "its topic was deleted"
    with pytest.raises(Unavailable, match="another log"):
        await node.standby.as_of(SESSION)


async def test_answer_is_as_of_the_last_note_unless_everything_is_folded(node: Node) -> None:
    node.log.add(COMMANDS, NUMBER, b"id", b"a command")
    with pytest.raises(Unavailable, match="not noted"):
        await node.standby.as_of(SESSION)
    node.log_rows((keys.POSITIONS, encode_positions(dict.fromkeys(FOLDED, 0), 1234)))
    node.apply()
    assert await node.standby.as_of(SESSION) == 1234
    node.log_rows((keys.POSITIONS, encode_positions({COMMANDS: 1}, 2345)))
    node.apply()
    assert await node.standby.as_of(SESSION) == node.log.now
    node.log_rows((keys.POSITIONS, b"unreadable"))
    node.apply()
    with pytest.raises(Damaged):
        await node.standby.as_of(SESSION)


async def test_only_an_end_says_that_no_windows_follow(node: Node) -> None:
    def view() -> Any:
        node.apply()
        view = node.standby.sessions.view(SESSION)
        assert view is not None
        return view

    node.log_rows(*of_session())
    assert not view().head.in_progress, "as far as the owner had logged its head"
    assert view().in_progress, "more chunks may be accepted"
    node.log_rows(*of_session(finished=True))
    assert not view().in_progress
    node.log_rows(*of_session(head=msgspec.structs.replace(HEAD, error="no sound")))
    assert not view().in_progress


async def test_deleted_session_and_deleted_project_are_not_shown(node: Node) -> None:
    node.log_rows(*of_session())
    node.apply()
    node.deleted.add("p")
    assert node.standby.sessions.view(SESSION) is None
    node.deleted.clear()
    node.log_rows((SessionStore(mock.Mock()).row_key(SESSION, keys.HEAD), None))
    node.apply()
    assert await node.standby.as_of(SESSION)
    assert node.standby.sessions.view(SESSION) is None
    assert list(node.rows.scan(keys.SESSION, keys.SESSION_DUE)) == []


async def test_jobs_are_read(node: Node) -> None:
    store = JobStore(mock.Mock())
    node.log_rows(
        (store.row_key(JOB, keys.REQUEST), encode(accepted("a", 1))),
        (keys.portion_key(JOB, Service.SOUND, 0), b"a portion"),
        (store.row_key(JOB, keys.HEAD), encode(JobHead(JobState.COMPLETED, 0, 0, "a"))),
    )
    node.apply()
    view = node.standby.jobs.view(JOB)
    assert view is not None
    assert (view.head.state, view.standby) == (JobState.COMPLETED, True)
    assert node.standby.jobs.portion(JOB, Service.SOUND, 0) == b"a portion"


async def test_table_being_taken_over_is_read_as_it_was_before_the_epoch(node: Node) -> None:
    """Meanwhile the owner folds commands again, and may create again what was deleted."""
    node.log_rows(*of_session())
    node.apply()
    owner = node.take_over()
    assert await node.standby.as_of(SESSION), "its table is not handed over yet"
    owner.take_rows(await node.house.standbys.promote(NUMBER))
    assert await node.standby.as_of(SESSION)
    owner.rows.begin(2, 3, node.log.now)
    owner.rows.write(dict.fromkeys(dict(of_session())))
    node.log_rows((b"\x01row", b"of this owner"), epoch=2)
    assert await node.standby.as_of(SESSION)
    view = node.standby.sessions.view(SESSION)
    assert view is not None
    assert view.head.windows == 2
    assert [windows.scores for windows in node.standby.sessions.windows(SESSION, 0, 8)] == [b"\0\0"]
    owner.serve()
    with pytest.raises(NotOwned):
        await node.standby.as_of(SESSION)
    assert owner.rows.before is None, "it would keep deleted rows in the files"


async def test_table_being_taken_over_is_not_read_once_another_owner_may_have_served(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group may have given the partition to a third node, and this one has not heard of it yet."""
    monkeypatch.setattr(module, "REACH_SECONDS", 0.05)
    node.log_rows(*of_session())
    node.apply()
    owner = node.take_over()
    owner.take_rows(await node.house.standbys.promote(NUMBER))
    owner.rows.begin(2, 3, node.log.now)
    node.log_rows((b"\x01row", b"of a later owner"), epoch=3)
    node.log.acknowledged = False
    with pytest.raises(Unavailable, match="behind its changelog"):
        await node.standby.as_of(SESSION)
    node.log.acknowledged = True
    owner.unread_gaps.add((3, 4))
    with pytest.raises(Unavailable, match="behind its changelog"):
        await node.standby.as_of(SESSION)


async def test_table_that_was_lost_while_it_was_folded_waits_for_the_next_owner(node: Node) -> None:
    owner = node.take_over()
    owner.take_rows(await node.house.standbys.promote(NUMBER))
    owner.rows.begin(2, 0, node.log.now)
    owner.rows.write(dict(of_session()))
    del node.owners.here[NUMBER]
    node.house.standbys.demote(owner.rows)
    with pytest.raises(Unavailable, match="being folded"):
        node.standby.sessions.view(SESSION)
    await node.house.keep(NUMBER)
    node.log_rows((keys.EPOCH, b"3"), (keys.POSITIONS, encode_positions({}, 1)), epoch=3)
    node.apply()
    assert node.standby.sessions.view(SESSION) is not None


async def test_node_without_a_table_knows_the_others(node: Node) -> None:
    other = keys.new_id(NUMBER + 1, PARTITIONS)
    node.owners.standbys_elsewhere = {NUMBER + 1: ["http://other"]}
    with pytest.raises(NotOwned):
        await node.standby.as_of(other)
    assert (node.standby.urls(other), node.standby.urls(SESSION)) == (["http://other"], ())
