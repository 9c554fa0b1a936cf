"""The queue for the disk, and the group being written.

The next group gathers while one is synced. A group is one WriteBatch, which reaches the disk whole or not at all.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from rocksdict import WriteBatch

from streams.embedded import layout
from streams.embedded.partition import Partition
from streams.log import Ack, StoredRecord
from topics.turns import Turns

#: A write holds the interpreter lock for some 30 us per 16 KiB record; this bounds it to about 2 ms.
GROUP_BYTES: Final = 1024 * 1024
#: Folding small records takes longer than writing them: some 60 us for each command, which has two or three items.
GROUP_ITEMS: Final = 512


class Append(NamedTuple):
    """A record to write."""

    partition: Partition
    key: bytes | None
    value: bytes | None
    future: asyncio.Future[Ack] | None
    #: Whether the record is kept and retried when the disk is full or fails; if not, its future fails.
    lasting: bool
    #: `record_cost` of the record.
    cost: int


class Barrier(NamedTuple):
    """A marker whose future resolves when all items before it are durable."""

    future: asyncio.Future[None]
    lasting: bool = False
    cost: int = 0


class Removal(NamedTuple):
    """The removal of a partition's records [since, before): the earliest ones, or a hole behind earlier ones."""

    partition: Partition
    since: int
    before: int
    is_hole: bool = False
    future: None = None
    lasting: bool = True
    cost: int = 0


Item = Append | Barrier | Removal


class Group:
    """Collects items to write together in `batch`. Loop only."""

    def __init__(self, number: int, now_ms: int, name: bytes = b"") -> None:
        """Begin a group of the log `name`."""
        self.items: list[Item] = []
        self.records: list[tuple[Partition, StoredRecord]] = []
        self.bytes = 0
        self.batch = WriteBatch(raw_mode=True)
        self.batch.put(layout.MARKER_KEY, layout.pack_marker(number, name))
        self._now = now_ms

    def add(self, item: Item) -> None:
        """Add an item to the batch; give a record its offset and timestamp."""
        self.items.append(item)
        if type(item) is Append:
            self._append(item)
        elif type(item) is Removal:
            self._remove(item)

    def _append(self, item: Append) -> None:
        partition, key, value = item[:3]
        offset = partition.next
        partition.next = offset + 1
        timestamp = partition.timestamp = max(self._now, partition.timestamp)
        self.batch.put(partition.key(offset), layout.pack_record(timestamp, key, value))
        self.records.append((partition, StoredRecord(offset, timestamp, key, value)))

    def _remove(self, item: Removal) -> None:
        partition = item.partition
        self.batch.delete_range(partition.key(item.since), partition.key(item.before))
        place = partition.topic_id, partition.tp.partition
        if item.is_hole:
            self.batch.put(layout.clean_key(*place), layout.pack_pair(partition.sparse_to, 0))
        else:
            self.batch.put(layout.earliest_key(*place), layout.pack_pair(item.before, partition.timestamp))

    def publish(self) -> None:
        """Make the records of a durable group visible, and resolve the futures."""
        for partition, record in self.records:
            partition.end = record.offset + 1
        records = iter(self.records)
        for item in self.items:
            if type(item) is Append:
                record = next(records)[1]
                if item.future is not None and not item.future.done():
                    item.future.set_result(Ack(record.offset, record.timestamp))
            elif type(item) is Barrier and not item.future.done():
                item.future.set_result(None)

    def withdraw(self) -> set[Partition]:
        """Reset the offsets; return the partitions that may hold records of the group."""
        touched = {partition for partition, _ in self.records}
        for partition in touched:
            partition.next = partition.end
        return touched


class Queue:
    """Holds items that wait for the disk: the service's own first, then those of projects, in turn. Loop only.

    So nobody waits for the megabytes of another project. The service's own items are small, and answer earlier ones.
    """

    def __init__(self) -> None:
        #: The oldest first: the service's own, those of an unwritten group, and all that came before a barrier.
        self._first: deque[Item] = deque()
        self._turns: Turns[Item] = Turns()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._turns)

    def put(self, item: Item, project: str = "") -> None:
        self.bytes += item.cost
        if type(item) is Append and not item.lasting:
            self._turns.put(project, item)
        else:
            if type(item) is Barrier:
                self._end_turns()
            self._first.append(item)

    def _end_turns(self) -> None:
        while (item := self._turns.take()) is not None:
            self._first.append(item)

    def _take(self) -> Item | None:
        return self._first.popleft() if self._first else self._turns.take()

    def fill(self, group: Group) -> None:
        """Move items into a group until it is full or the queue is empty."""
        while group.bytes < GROUP_BYTES and len(group.items) < GROUP_ITEMS and (item := self._take()) is not None:
            self.bytes -= item.cost
            group.bytes += item.cost
            group.add(item)

    def put_back(self, items: Iterable[Item]) -> None:
        """Put items of an unwritten group back at the head, in order."""
        kept = list(items)
        self._first.extendleft(reversed(kept))
        self.bytes += sum(item.cost for item in kept)

    def fail_not_lasting(self, error: Exception) -> None:
        self._end_turns()
        fail_items((item for item in self._first if not item.lasting), error)
        self._first = deque(item for item in self._first if item.lasting)
        self.bytes = sum(item.cost for item in self._first)

    def drop(self, error: Exception) -> None:
        self._end_turns()
        fail_items(self._first, error)
        self._first.clear()
        self.bytes = 0


def fail_items(items: Iterable[Item], error: Exception) -> None:
    for item in items:
        if item.future is not None and not item.future.done():
            item.future.set_exception(error)
