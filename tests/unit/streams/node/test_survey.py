"""A takeover looks at the rows in slices, and begins their work in slices, while records are folded."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streams.folding.batch import fold_batch
from streams.folding.fold import Changes
from streams.folding.references import References
from streams.node import workload
from streams.node.node import Node
from streams.node.owner import PartitionOwner
from streams.sessions.store import SessionStore
from tests.unit.streams.node.nodes import Home, in_partition, send
from tests.unit.streams.sessions.rows import delivered
from tests.unit.streams.sessions.studio import FILE
from topics.catalog import COMMANDS
from topics.records import Record
from topics.sessions.records import Chunk, Cursor, Deleted, NewWindows

NUMBER = 1
CHUNKS = 40


class TakenOver:
    """A partition with a long session, as a takeover finds it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.work = node.session_workload
        self.session = in_partition(NUMBER)

    async def fill(self) -> None:
        await send(self.node, self.session, FILE, *(Chunk(str(n), n, b"s") for n in range(CHUNKS)))
        self.offsets = [row.offset for row in self.store.audio(self.session, 0, CHUNKS)]
        self.store.references = References()
        self.owner.serving = False

    @property
    def owner(self) -> PartitionOwner:
        return self.node.owners.here[NUMBER]

    @property
    def store(self) -> SessionStore:
        return self.owner.sessions

    def fold(self, topic: str, offset: int, record: Record) -> None:
        """Fold a record that was on its way when the partition moved."""
        assert fold_batch(self.store, [delivered(offset, self.session, record)], self.work.folds[topic]) == 1

    def held(self) -> list[int]:
        return [offset for offset in range(self.offsets[-1] + 10) if self.store.references.held(offset)]


@asynccontextmanager
async def taken_over(directory: Path) -> AsyncIterator[TakenOver]:
    async with Home(directory).serving() as node:
        partition = TakenOver(node)
        await partition.fill()
        yield partition
        partition.owner.serving = True


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "SURVEYED", 2)
    monkeypatch.setattr(workload, "PAGE_ROWS", 3)


async def test_audio_of_long_session_is_held_in_several_turns(tmp_path: Path) -> None:
    async with taken_over(tmp_path) as partition:
        surveying, held = asyncio.create_task(partition.work.survey(partition.owner)), [0]
        while not surveying.done():
            await asyncio.sleep(0)
            held.append(len(partition.held()))
        assert 0 < max(after - before for before, after in pairwise(held)) <= 2 * 3
        assert partition.held() == partition.offsets


def delete(partition: TakenOver) -> list[int]:
    partition.fold(COMMANDS, partition.offsets[-1] + 1, Deleted("d"))
    return []


async def drop_chunks(partition: TakenOver) -> list[int]:
    dropped = CHUNKS - 5
    partition.work.writer._store_of = lambda session: partition.store
    await partition.work.writer.write(partition.session, NewWindows(0, "m@0", b"", Cursor(dropped, dropped)))
    return partition.offsets[dropped:]


def add_chunk(partition: TakenOver) -> list[int]:
    partition.fold(COMMANDS, last := partition.offsets[-1] + 1, Chunk("late", CHUNKS, b"s"))
    return [*partition.offsets, last]


@pytest.mark.parametrize("change", [delete, drop_chunks, add_chunk])
async def test_change_during_survey_decides_which_audio_is_held(
    tmp_path: Path, change: Callable[[TakenOver], Any]
) -> None:
    async with taken_over(tmp_path) as partition:
        surveying = asyncio.create_task(partition.work.survey(partition.owner))
        await turns(5)
        assert 0 < len(partition.held()) < CHUNKS - 5
        held = change(partition)
        held = await held if inspect.isawaitable(held) else held
        await surveying
        assert partition.held() == held


async def test_work_begins_in_several_turns_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    async with taken_over(tmp_path) as partition:
        monkeypatch.setattr(partition.work.analyser, "enqueue", begun.append)
        owner, sessions = partition.owner, [in_partition(NUMBER) for _ in range(7)]
        owner.early[COMMANDS] = Changes(work=dict.fromkeys(sessions))
        owner.serving = True
        beginning, counts = asyncio.create_task(partition.work.begin(owner)), [0]
        while not beginning.done():
            await asyncio.sleep(0)
            counts.append(len(begun))
            if len(begun) == 2:  # A session that has begun gets more work.
                partition.work.announce(Changes(changed={sessions[0]: None}, work={sessions[0]: None}))
        assert max(after - before for before, after in pairwise(counts)) == 2
        assert begun == [*sessions, sessions[0]]
        assert beginning.result() == len(sessions)
        partition.work.announce(Changes(changed={sessions[0]: None}, work={sessions[0]: None}))
        assert begun[-2:] == [sessions[0], sessions[0]]


async def test_partition_that_stops_begins_no_more_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    async with taken_over(tmp_path) as partition:
        monkeypatch.setattr(partition.work.analyser, "enqueue", begun.append)
        owner = partition.owner
        owner.early[COMMANDS] = Changes(work=dict.fromkeys(in_partition(NUMBER) for _ in range(7)))
        owner.serving = True
        beginning = asyncio.create_task(partition.work.begin(owner))
        await turns(5)
        owner.serving = False
        await beginning
        assert 0 < len(begun) < 5
