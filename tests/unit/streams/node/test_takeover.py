"""Takeovers: the table, the epoch, and then the records on the log that the table lacks."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.log import StoredRecord
from streams.node import partition_consumer
from streams.node.owner import PartitionOwner
from streams.node.partition_consumer import PartitionStopped
from streams.tables.partition_rows import encode_positions
from tests.unit.streams.node.logs import MemoryLog, MemoryNode
from topics.catalog import (
    CHANGELOG,
    COMMANDS,
    FOLDED,
    JOB_COMMANDS,
    JOB_RESULTS,
    TopicPartition,
)
from topics.keys import EPOCH, POSITIONS

K, L = b"\x01k", b"\x01l"
NOW = MemoryLog().now
ROWS = TopicPartition(CHANGELOG, 0)


class Street:
    """Nodes on one log; their tables are closed at the end."""

    def __init__(self, directory: Path) -> None:
        self.log = MemoryLog()
        self.directory = directory
        self.owners: list[PartitionOwner] = []

    def node(self, name: str = "a", *, shared: bool = True) -> MemoryNode:
        return MemoryNode(self.log, self.directory / name, shared=shared)

    def owner(self, node: MemoryNode, number: int = 0) -> PartitionOwner:
        owner = node.owner(number)
        self.owners.append(owner)
        return owner

    async def take_over(self, *, shared: bool = True) -> tuple[MemoryNode, PartitionOwner]:
        node = self.node(shared=shared)
        owner = self.owner(node)
        await node.take_over(owner)
        return node, owner

    def markers(self) -> list[tuple[bytes | None, int]]:
        return [(record.value, record.epoch) for record in self.log.records[ROWS] if record.key == EPOCH]


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path)
    yield street
    for owner in street.owners:
        owner.rows.close()


def beside_appends(log: MemoryLog, before: Callable[[], object], after: Callable[[], object] = lambda: None) -> None:
    """Run callbacks before and after each append."""
    append = log.append

    def beset(topic: str, *arguments: object, **named: object) -> object:
        before()
        ack = append(topic, *arguments, **named)  # type: ignore[arg-type]
        after()
        return ack

    log.append = beset  # type: ignore[method-assign, assignment]


def rows_of(owner: PartitionOwner) -> dict[bytes, bytes]:
    return dict(owner.rows.scan(b"\x01", b"\xff"))


# --- epochs ---------------------------------------------------------------------------------------------------------


async def test_each_takeover_starts_new_epoch(street: Street) -> None:
    street.log.add(CHANGELOG, 0, K, b"from before there were epochs")
    for epoch in (1, 2, 3):
        _, owner = await street.take_over()
        assert (owner.rows.epoch, owner.rows.applied.epoch) == (epoch, epoch)
        assert owner.rows.applied.offset == street.log.end(ROWS)
        owner.rows.write({L: b"%d" % epoch})
        assert street.log.records[ROWS][-1].epoch == epoch
        owner.rows.close()
        street.owners.clear()
    assert street.markers() == [(b"1", 1), (b"2", 2), (b"3", 3)]


async def test_first_claim_on_log_wins_epoch(street: Street) -> None:
    nodes = [street.node(name) for name in "ab"]
    first, second = (street.owner(node) for node in nodes)
    await asyncio.gather(nodes[0].take_over(first), nodes[1].take_over(second))
    assert street.markers() == [(b"1", 1), (b"1", 1), (b"2", 2)]
    assert (first.rows.epoch, second.rows.epoch) == (1, 2)
    # Later writes of the first owner are late.
    first.rows.write({K: b"late"})
    second.rows.write({K: b"good"})
    first.rows.write({K: None})
    third = street.node("c")
    await third.take_over(owner := street.owner(third))
    assert rows_of(owner) == {K: b"good"}
    assert owner.rows.epoch == 3


async def test_rows_written_between_restore_and_claim_are_applied(street: Street) -> None:
    """The previous owner goes on until it learns of the takeover."""
    log, node = street.log, street.node()
    owner = street.owner(node)
    log.add(CHANGELOG, 0, EPOCH, b"4", 4)
    beside_appends(
        log,
        lambda: log.add(CHANGELOG, 0, K, b"just in time", 4),
        lambda: log.add(CHANGELOG, 0, L, b"too late", 4),
    )
    await node.take_over(owner)
    assert owner.rows.epoch == 5
    assert rows_of(owner) == {K: b"just in time"}


async def test_unshared_log_has_no_epochs(street: Street) -> None:
    street.log.add(CHANGELOG, 0, K, b"v")
    _, owner = await street.take_over(shared=False)
    assert (owner.rows.epoch, rows_of(owner), street.markers()) == (0, {K: b"v"}, [])


async def test_owner_closed_during_claim_leaves_table_unchanged(street: Street) -> None:
    """The table then belongs to a stand-by, which follows from its position."""
    log, node = street.log, street.node()
    owner = street.owner(node)
    log.add(CHANGELOG, 0, K, b"v", 4)

    def lose() -> None:
        log.add(CHANGELOG, 0, L, b"of the next owner", 4)
        owner.close("it went to another node")

    beside_appends(log, lose)
    await node.take_over(owner)
    assert (owner.rows.epoch, owner.rows.applied.offset, rows_of(owner)) == (0, 1, {K: b"v"})


def fill(log: MemoryLog, count: int, partition: int = 0) -> None:
    for topic in sorted(FOLDED):
        for _ in range(count):
            log.add(topic, partition, b"k", b"v")


async def test_backlog_is_folded_from_noted_positions_commands_first(street: Street) -> None:
    fill(street.log, 3)
    positions = {COMMANDS: 1, JOB_COMMANDS: 3, JOB_RESULTS: 0}
    street.log.add(CHANGELOG, 0, POSITIONS, encode_positions(positions))
    node, owner = await street.take_over()
    topics = [topic for topic, _ in node.folded]
    assert set(topics[:2]) == {COMMANDS}
    assert set(topics[2:]) == {JOB_RESULTS}
    for topic, position in positions.items():
        assert [offset for of, offset in node.folded if of == topic] == list(range(position, 3))
        assert (owner.consumers[topic].position, owner.consumers[topic].level) == (3, True)
    assert owner.positions() == dict.fromkeys(FOLDED, 3)
    assert node.surveyed == [0]
    assert not owner.serving


async def test_expired_records_are_skipped_and_counted_unless_folded(street: Street) -> None:
    fill(street.log, 6)
    street.log.add(CHANGELOG, 0, POSITIONS, encode_positions(dict.fromkeys(FOLDED, 1)))
    commands = TopicPartition(COMMANDS, 0)
    street.log.begins[commands] = 4
    del street.log.records[commands][:4]
    node, owner = await street.take_over()
    assert [offset for of, offset in node.folded if of == COMMANDS] == [4, 5]
    assert (owner.consumers[COMMANDS].position, street.log.removed) == (6, 3)


async def test_log_that_is_not_the_one_of_before_stops_takeover(street: Street) -> None:
    """Before its rows are read: a table that holds more must not be set aside for it."""
    node = street.node()
    owner = street.owner(node)
    owner.rows.apply([StoredRecord(7, 0, K, b"of before")])
    street.log.lost[0] = "records were lost"
    with pytest.raises(PartitionStopped, match="records were lost"):
        await node.take_over(owner)
    assert rows_of(owner) == {K: b"of before"}
    assert not street.markers()


async def test_positions_beyond_end_of_log_are_clamped(street: Street) -> None:
    fill(street.log, 2)
    street.log.add(CHANGELOG, 0, POSITIONS, encode_positions(dict.fromkeys(FOLDED, 50)))
    _, owner = await street.take_over()
    assert owner.positions() == dict.fromkeys(FOLDED, 2)


async def test_retried_takeover_folds_nothing_twice(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment of service, a consumer may fetch a gap. Folding it again could bring back what it deletes."""
    monkeypatch.setattr(partition_consumer, "FOLDED", 1)
    node, owner = await street.take_over()
    fill(street.log, 4)
    consumer = owner.consumers[COMMANDS]
    consumer.fall_behind(4)

    async def fetch_gap() -> None:
        async with owner.catching_up:
            await consumer.catch_up()

    await asyncio.gather(fetch_gap(), node.take_over(owner))
    assert [offset for of, offset in node.folded if of == COMMANDS] == [0, 1, 2, 3]
