"""The queue for the disk, and the group being written.

The next group gathers while one is synced. A group is one WriteBatch, which reaches the disk whole or not at all.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from rocksdict import WriteBatch

from streams.embedded import layout
from streams.embedded.log_clock import stamp
from streams.embedded.partition import Partition
from streams.log import Ack, StoredRecord
from topics.records import Record
from topics.turns import Sharing, Turns

#: A write holds the interpreter lock for some 30 us per 16 KiB record; this bounds it to about 2 ms.
GROUP_BYTES: Final = 1024 * 1024
#: Folding small records takes longer than writing them: some 60 us for each command, which has two or three items.
GROUP_ITEMS: Final = 512
#: Bytes of commands in a group, for each project that waits, if several projects send commands: a command waits for the
#: whole group, and for the one before. Each counts at least the second number: folding takes longer than writing.
SHARED_BYTES: Final = 128 * 1024
LEAST_BYTES: Final = 4 * 1024
#: How long after another project's command the log counts as shared.
SHARED_SECONDS: Final = 1.0
#: Fewer records are deleted one by one: reads examine each deletion of a range that is still in the write buffer.
FEW_RECORDS: Final = 16


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
    #: Called once it is durable, as an alternative to a future.
    durable: Callable[[], None] | None = None
    #: What `value` encodes, if known.
    content: Record | None = None


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

    @property
    def keys(self) -> tuple[bytes, bytes]:
        return self.partition.key(self.since), self.partition.key(self.before)


class Move(NamedTuple):
    """The rewrite of large records, which moves them out of a file that also holds deleted ones."""

    keys: Sequence[bytes]
    get: Callable[[bytes], bytes | None]
    cost: int
    future: asyncio.Future[None]
    lasting: bool = False


Item = Append | Barrier | Removal | Move


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
        elif type(item) is Move:
            self._move(item)

    def _append(self, item: Append) -> None:
        partition, key, value = item[:3]
        offset = partition.next
        partition.next = offset + 1
        timestamp = partition.timestamp = stamp(self._now, partition.timestamp)
        self.batch.put(partition.key(offset), layout.pack_record(timestamp, key, value))
        self.records.append((partition, StoredRecord(offset, timestamp, key, value, 0, item.content)))

    def _remove(self, item: Removal) -> None:
        partition = item.partition
        if item.before - item.since < FEW_RECORDS:
            for offset in range(item.since, item.before):
                self.batch.delete(partition.key(offset))
        else:
            self.batch.delete_range(partition.key(item.since), partition.key(item.before))
        place = partition.topic_id, partition.tp.partition
        if item.is_hole:
            self.batch.put(layout.clean_key(*place), layout.pack_pair(partition.sparse_to, 0))
        else:
            self.batch.put(layout.earliest_key(*place), layout.pack_pair(item.before, partition.timestamp))

    def _move(self, item: Move) -> None:
        gone = [removal.keys for removal in self.items if type(removal) is Removal]
        for key in item.keys:
            value = None if any(since <= key < before for since, before in gone) else item.get(key)
            if value is not None:
                self.batch.put(key, value)

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
                elif item.durable is not None:
                    item.durable()
            elif isinstance(item, Barrier | Move) and not item.future.done():
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
        self._sharing = Sharing(SHARED_SECONDS)
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._turns)

    def put(self, item: Item, project: str = "") -> None:
        self.bytes += item.cost
        if type(item) is Append and not item.lasting:
            self._turns.put(project, item)
            self._sharing.note(project, time.monotonic())
        else:
            if type(item) is Barrier:
                self._end_turns()
            self._first.append(item)

    def _end_turns(self) -> None:
        while (item := self._turns.take()) is not None:
            self._first.append(item)

    def fill(self, group: Group) -> None:
        """Move items into a group until it is full or the queue is empty."""
        is_shared = self._sharing.is_shared(time.monotonic())
        room = SHARED_BYTES * len(self._turns) if is_shared else math.inf
        while group.bytes < GROUP_BYTES and len(group.items) < GROUP_ITEMS:
            if self._first:
                item = self._first.popleft()
            elif room > 0 and (taken := self._turns.take()) is not None:
                item = taken
                room -= max(item.cost, LEAST_BYTES)
            else:
                return
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
