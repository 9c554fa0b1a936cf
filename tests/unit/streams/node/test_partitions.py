"""What a node waits for before it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from streams.node import partitions as module
from streams.node.partitions import OwnedPartitions
from tests.unit.streams.sessions.rows import MemoryPartition
from topics.catalog import COMMANDS, COMMANDS_PARKED, FOLD_ORDER, PARKED, RESULTS, TopicPartition
from topics.errors import Unavailable
from topics.keys import new_id, partition_of


class Consumer:
    """Five records are in each log, reading began at the third; `topics` have partitions here."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.resumed: list[str] = []

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(topic, 0) for topic in (*self.topics, COMMANDS_PARKED)}

    def resume_streams(self, topics: Container[str]) -> None:
        self.resumed += [topic for topic in self.topics if topic in topics]

    async def highwaters(self, *tps: TopicPartition) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(tps, 5)

    async def earliest_offsets(self, *tps: TopicPartition) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def start_offset(self, tp: TopicPartition) -> int:
        return 2


def application(*topics: str) -> SimpleNamespace:
    """All tables are open, also those of other nodes' partitions."""
    return SimpleNamespace(
        consumer=Consumer(*topics),
        conf=SimpleNamespace(canonical_url="http://here"),
        row_table=SimpleNamespace(rows=lambda partition: MemoryPartition()),
    )


def test_a_node_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.02)

    async def scene() -> None:
        partitions = OwnedPartitions(application(COMMANDS), 1)
        with capture_logs() as lines:
            waiting = asyncio.create_task(partitions.catch_up(lambda: asyncio.sleep(0)))
            await asyncio.sleep(0.05)
            partitions.note_folded(COMMANDS, 0, 4)
            await asyncio.sleep(0.03)
            assert not waiting.done()
            partitions.note_folded(COMMANDS, 0, 5)
            await waiting
        assert partitions.ready
        assert {line["event"] for line in lines} == {"node.waiting"}
        at = f"{COMMANDS}/0"
        assert (lines[0]["folded"], lines[-1]["folded"]) == ({at: "2 of 5"}, {at: "4 of 5"})

    asyncio.run(scene())


def test_results_are_read_once_all_commands_are_folded() -> None:
    """A result that is folded before its session counts for nothing, and the session would be analysed again."""
    assert {topic for topics in FOLD_ORDER for topic in topics} == set(PARKED)

    async def scene() -> None:
        consumer = (here := application(RESULTS, COMMANDS)).consumer
        partitions = OwnedPartitions(here, 1)
        waiting = asyncio.create_task(partitions.catch_up(lambda: asyncio.sleep(0)))
        for folded in 4, 5:
            await asyncio.sleep(0.01)
            assert consumer.resumed == [COMMANDS]
            partitions.note_folded(COMMANDS, 0, folded)
        await asyncio.sleep(0.01)
        assert consumer.resumed == [COMMANDS, RESULTS]
        assert not partitions.ready
        partitions.note_folded(RESULTS, 0, 5)
        await waiting

    asyncio.run(scene())


def test_a_partition_of_another_node_is_not_served() -> None:
    mine, other = (next(name for _ in range(100) if partition_of(name := new_id(), 2) == number) for number in (0, 1))

    async def scene() -> None:
        partitions = OwnedPartitions(application(COMMANDS), 2)
        partitions.note_folded(COMMANDS, 0, 5)
        with pytest.raises(Unavailable, match="partition 0 has no ready owner here"):
            partitions.sessions.serving(mine)
        await partitions.catch_up(lambda: asyncio.sleep(0))
        assert partitions.sessions.serving(mine).head(mine) is None
        for serving in (partitions.sessions.serving, partitions.jobs.serving):
            with pytest.raises(Unavailable, match="partition 1 has no ready owner here"):
                serving(other)

    asyncio.run(scene())
