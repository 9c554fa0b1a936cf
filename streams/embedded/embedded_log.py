"""The embedded log: durable, partitioned topics in one directory of this machine."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from streams.embedded import layout
from streams.embedded.compaction import Compaction
from streams.embedded.errors import LogDamaged, LogError
from streams.embedded.group_writer import GroupWriter
from streams.embedded.groups import Append, Group, Removal
from streams.embedded.lock import DirectoryLock
from streams.embedded.log_clock import LogClock, boot_time
from streams.embedded.log_store import MIB, Store
from streams.embedded.marks import Marks
from streams.embedded.partition import Partition
from streams.log import Ack, Apply, StoredRecord, record_cost
from topics.catalog import TopicPartition
from topics.errors import Unavailable
from topics.records import Record

log: Final = logging.getLogger(__name__)

#: Minimum age of a removable tombstone, in milliseconds since its write, the log's opening and the clock's last jump.
TOMBSTONE_MS: Final = 3600 * 1000
#: A file that marks a log with an unreadable record: the next start reads the whole log.
DAMAGED: Final = "damaged"
#: Bytes that `read_on` reads per call, in just under a millisecond.
SLICE_BYTES: Final = 256 * 1024
#: Bytes of large records that are moved per second, at about 6 % of a CPU core.
MOVED_BYTES: Final = 8 * MIB
_END: Final = b"\xff"


class Declaration(msgspec.Struct, frozen=True):
    """The declared properties of a topic."""

    partitions: int
    compact: bool
    retention_ms: int | None


class EmbeddedLog:
    """Stores and reads a partitioned log, which one process has open at a time.

    Loop only, except `get`, `compact` and `reclaim`. Readers see durable records only. They raise Unavailable while the
    disk fails, and LogError if the log is damaged or has no such partition.
    """

    def __init__(
        self,
        directory: Path,
        lock: DirectoryLock,
        store: Store,
        *,
        sync: bool,
        queue_bytes: int,
        clock: Callable[[], float],
        steady: Callable[[], float],
        marks: Marks | None = None,
    ) -> None:
        self.directory = directory
        self.store = store
        self.clock = clock
        self.declarations: dict[str, Declaration] = {}
        self._log_clock = LogClock(clock, steady)
        #: The first damage found, None if none was.
        self.damage: LogDamaged | None = None
        self._lock = lock
        self._delivered: Container[str] = ()
        self._deliver: Apply = lambda tp, records: None
        self._closing = threading.Event()
        self._compacting = threading.Lock()
        self._topics: dict[str, tuple[int, int]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._load_topics()
        self._log_clock.compare(max((one.timestamp for one in self._partitions.values()), default=0))
        self._writer = GroupWriter(
            store,
            self._publish,
            self._topic_rows,
            sync=sync,
            queue_bytes=queue_bytes,
            now_ms=self._log_clock.now_ms,
            marks=marks,
        )

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        sync: bool = True,
        queue_bytes: int = 64 * MIB,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = boot_time,
        marks: Marks | None = None,
        name: bytes | None = None,
        lock: DirectoryLock | None = None,
    ) -> EmbeddedLog:
        """Open the log of a directory; create it if missing.

        With `sync`, a record is acknowledged after fdatasync and survives power loss; without, after write().
        `queue_bytes` bounds bounded appends that wait for the disk. `clock` returns seconds since the epoch, `steady`
        seconds that never jump. `marks` holds and records how far the log had come; `name` is the expected identity of
        the log, None if unknown. `lock` is the lock of the directory, if the caller has it already; the log takes it
        over.

        Raises:
            LogLocked: another process uses the directory.
            LogError: the log is damaged, unreadable, incomplete, or of another format version.
        """
        with ExitStack() as undone:
            undone.callback((lock := lock or DirectoryLock(directory)).release)
            damaged = directory / DAMAGED
            group = 0 if marks is None else marks.group
            store = Store.open(directory / "log", group, name, whole=damaged.exists())
            undone.callback(store.close)
            opened = cls(
                directory, lock, store, sync=sync, queue_bytes=queue_bytes, clock=clock, steady=steady, marks=marks
            )
            if marks is not None:
                marks.keep()
            damaged.unlink(missing_ok=True)
            undone.pop_all()
        return opened

    def _load_topics(self) -> None:
        self._topics = self.store.topics()
        for name in self._topics:
            self._add_partitions(name)
        with suppress(Unavailable):  # The disk is full; appends report it.
            self.store.write_patiently(self._topic_rows())

    def _topic_rows(self) -> dict[bytes, bytes]:
        """Return the rows that name the topics: written again and again, so that a lost table does not lose them."""
        return {layout.topic_key(name): layout.pack_topic(*topic) for name, topic in self._topics.items()}

    def _add_partitions(self, topic: str) -> None:
        topic_id, partitions = self._topics[topic]
        for number in range(partitions):
            partition = Partition(TopicPartition(topic, number), topic_id)
            partition.restore(self.store)
            self._partitions[partition.tp] = partition

    def declare(self, topic: str, partitions: int, *, compact: bool = False, retention_ms: int | None = None) -> None:
        """Create a topic, or set how its records are kept; raise LogError if it has another number of partitions."""
        if topic not in self._topics:
            topic_id = 1 + max((number for number, _ in self._topics.values()), default=0)
            self.store.write_patiently({layout.topic_key(topic): layout.pack_topic(topic_id, partitions)})
            self.store.sync()
            self._topics[topic] = topic_id, partitions
            self._add_partitions(topic)
        existing = self._topics[topic][1]
        if existing != partitions:
            raise LogError(
                f"topic {topic} has {existing} partitions in {self.directory}, {partitions} are asked for: keys would "
                f"change their partition; set EARSHOT_PARTITIONS={existing}, or use another data directory"
            )
        self.declarations[topic] = Declaration(partitions, compact, retention_ms)
        for number in range(partitions):
            partition = self._partitions[TopicPartition(topic, number)]
            partition.compacted = compact
            if compact:
                partition.sparse_to = layout.MAX_OFFSET

    def topics(self) -> Mapping[str, int]:
        return {topic: partitions for topic, (_, partitions) in self._topics.items()}

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        bounded: bool = True,
        epoch: int = 0,
        project: str = "",
        content: Record | None = None,
    ) -> asyncio.Future[Ack]:
        """Queue a record; the future resolves with offset and timestamp once the record is durable and readable.

        A bounded append is refused or fails while the queue or disk is full; an unbounded one waits without limit.

        Raises:
            Unavailable: nothing was queued. The future may raise it too; then nothing was written.
            LogError: the log failed for good.
        """
        there = self._partition(topic, partition)
        return self._writer.append(there, key, value, bounded=bounded, project=project, content=content)

    def append_rows(
        self,
        topic: str,
        partition: int,
        rows: Mapping[bytes, bytes | None],
        epoch: int,
        durable: Callable[[], None] | None = None,
    ) -> None:
        there, left = self._partition(topic, partition), len(rows)
        for key, value in rows.items():
            left -= 1
            self._writer.put(Append(there, key, value, None, True, record_cost(key, value), None if left else durable))

    async def flush(self) -> None:
        await self._writer.flush()

    def earliest(self, tp: TopicPartition) -> int:
        """Return the lowest readable offset."""
        return self._partition(*tp).earliest

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last durable record."""
        return self._partition(*tp).end

    def read(self, tp: TopicPartition, offset: int, max_records: int, max_bytes: int) -> list[StoredRecord]:
        """Return durable records from `offset`, or from the earliest offset if that is higher.

        Return at most `max_records`, with `max_bytes` of keys and values, but at least one record if there is any.
        """
        records: list[StoredRecord] = []
        partition = self._partition(*tp)
        for record in partition.records(self.store, max(offset, partition.earliest)):
            max_bytes -= len(record.key or b"") + len(record.value or b"")
            if len(records) >= max_records or (max_bytes < 0 and records):
                break
            records.append(record)
        return records

    def get(self, tp: TopicPartition, offset: int) -> StoredRecord | None:
        """Return one durable record, or None if it was removed or is not there yet. Any thread."""
        partition = self._partition(*tp)
        if not partition.earliest <= offset < partition.end:
            return None
        try:
            data = self.store.get(partition.key(offset))
        except LogDamaged as error:
            self.note_damage(error)
            raise
        if data is not None:
            return layout.unpack_record(offset, data)
        if offset < max(partition.sparse_to, partition.earliest):
            return None
        raise partition.hole(offset)

    def holds(self, tp: TopicPartition, since: int, before: int) -> bool:
        """Return whether there is a record in [since, before). Any thread."""
        partition = self._partition(*tp)
        return any(True for _ in self.store.scan(partition.key(since), partition.key(before)))

    def note_damage(self, damage: LogDamaged) -> None:
        """Note that a record cannot be read, which stops the node. Any thread."""
        # A copy, because the frames of the original keep the database open.
        self.damage = self.damage or LogDamaged(f"{self.directory}: {damage}")
        with suppress(OSError):
            (self.directory / DAMAGED).touch(0o600)

    def read_on(self, start: bytes) -> bytes | None:
        """Read a slice of the database from a key on; return the next key, None at the end. For a worker thread."""
        size = 0
        with self._compacting:
            if not self._closing.is_set():
                for key, value in self.store.scan(start, _END):
                    size += len(key) + len(value)
                    if size > SLICE_BYTES:
                        return key + b"\0"
        return None

    def deliver(self, topics: Container[str], deliver: Apply) -> None:
        """Call `deliver` in the event loop with the records of these topics as soon as their group is durable."""
        self._delivered, self._deliver = topics, deliver

    def trim(self, tp: TopicPartition, before: int) -> None:
        """Remove the records below `before`: unreadable at once, off the disk later. A lower `before` restores none."""
        partition = self._partition(*tp)
        before = min(before, partition.end)
        if before > partition.earliest:
            since, partition.earliest = partition.earliest, before
            self._writer.put(Removal(partition, since, before))

    def make_hole(self, tp: TopicPartition, since: int, before: int) -> None:
        """Remove the durable records in [since, before) although earlier ones stay; not in a compacted partition."""
        partition = self._partition(*tp)
        partition.sparse_to = max(partition.sparse_to, before)
        self._writer.put(Removal(partition, since, before, is_hole=True))

    def compact(self, tp: TopicPartition) -> int:
        """Keep the last record of each key, without old tombstones; return the number removed. For a worker thread.

        A tombstone is old once `TOMBSTONE_MS` have passed since its write *and* since the log was opened, so that a
        table that replays the log after a start still sees it. The last record of the partition stays.
        """
        partition = self._partition(*tp)
        before = int(self.clock() * 1000) - TOMBSTONE_MS
        with self._compacting:
            partition.sparse_to = layout.MAX_OFFSET
            tombstones_before_ms = before if before >= self._log_clock.right_since_ms else 0
            return Compaction(self.store, partition, self._closing.is_set, tombstones_before_ms).run()

    def dirty(self, tp: TopicPartition) -> tuple[int, int]:
        """Return how many records no compaction has seen, and how many the last one kept and are still there."""
        partition = self._partition(*tp)
        return partition.dirty, partition.kept

    def reclaim(self, tp: TopicPartition) -> None:
        """Free the disk space of trimmed records now. For a worker thread."""
        partition = self._partition(*tp)
        with self._compacting:
            if not self._closing.is_set():
                self.store.reclaim(partition.key(0), partition.key(max(partition.earliest, partition.sparse_to)))

    async def erase(self) -> None:
        """Rewrite the files that hold removed records, until the log closes.

        Raises:
            LogError: the log is damaged or failed for good.
            Unavailable: the disk is full or fails; the next call continues.
        """
        self.store.deletions.begin()
        noted = await asyncio.to_thread(self.store.noted)
        if not await asyncio.to_thread(self._rewrite, self.store.deletions.starts(noted)):
            return
        # Only now, because RocksDB counts deleted large records once their keys are gone.
        stay = await asyncio.to_thread(lambda: list(self.store.beside_deleted()))
        for some, size in _slices(stay):
            await self._writer.move(some, size)
            await asyncio.sleep(size / MOVED_BYTES)
        if await asyncio.to_thread(self._rewrite, {key[: layout.NOTED_BYTES] for key, _ in stay}):
            await asyncio.to_thread(self.store.forget, noted)

    def _rewrite(self, starts: Collection[bytes]) -> bool:
        with self._compacting:
            return not self._closing.is_set() and self.store.rewrite(starts)

    @property
    def failure(self) -> BaseException | None:
        return self._writer.failure

    @property
    def refusal(self) -> str | None:
        return self._writer.refusal

    @property
    def queued_bytes(self) -> int:
        return self._writer.queued_bytes

    async def close(self) -> None:
        """Flush the queue, wait for compaction to stop, and release the directory. Idempotent."""
        if self._closing.is_set():
            return
        self._closing.set()
        await self._writer.close()
        await asyncio.to_thread(self._close_store)

    def _close_store(self) -> None:
        with self._compacting:
            try:
                self.store.close()
            except (LogError, Unavailable) as error:
                log.warning("the log's database did not close well, nothing durable is lost: %s", error)
            finally:
                self._lock.release()

    def _publish(self, group: Group) -> None:
        batches: dict[TopicPartition, list[StoredRecord]] = {}
        for partition, record in group.records:
            if partition.tp.topic in self._delivered:
                batches.setdefault(partition.tp, []).append(record)
        for tp, records in batches.items():
            self._deliver(tp, records)

    def _partition(self, topic: str, number: int) -> Partition:
        partition = self._partitions.get((topic, number))
        if partition is None:
            raise LogError(f"the log has no partition {number} of topic {topic}: declare the topic first")
        return partition


def _slices(records: Iterable[tuple[bytes, int]]) -> Iterator[tuple[list[bytes], int]]:
    """Yield the keys of some records in slices of about `SLICE_BYTES`, with the size of each slice."""
    keys: list[bytes] = []
    total = 0
    for key, size in records:
        keys.append(key)
        total += size
        if total >= SLICE_BYTES:
            yield keys, total
            keys, total = [], 0
    if keys:
        yield keys, total
