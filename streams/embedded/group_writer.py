"""Group commit: items gather while the previous group syncs; each group costs one write and one fdatasync.

A group begins as soon as the one before is durable, and the loop has read and folded what came with its first item.

The event loop does the write, because the binding holds the interpreter lock during it in any thread. Only the sync,
which releases the lock, runs in a thread. A lone append costs one fdatasync and two thread switches; a busy loop
writes larger groups.

A full or failing disk fails the current group and all waiting bounded appends. Once there is room, the database is
reopened (`DiskDatabase`), and the next group first deletes the remains of failed groups: a group that failed at the
sync may be whole in the write-ahead log, and would come back if the process died first.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from queue import SimpleQueue
from threading import Thread
from typing import Final

from streams.cores import LOOP_SLICE, wake_promptly
from streams.disk import DiskFull
from streams.embedded import layout
from streams.embedded.compaction import Superseded
from streams.embedded.errors import LogError
from streams.embedded.groups import (
    GROUP_BYTES,
    GROUP_ITEMS,
    Append,
    Barrier,
    Group,
    Item,
    Move,
    Queue,
    Removal,
    fail_items,
)
from streams.embedded.layout import NOTED_OFFSETS
from streams.embedded.log_store import DISK_FULL, Stalled, Store
from streams.embedded.marks import Marks
from streams.embedded.partition import Partition
from streams.log import Ack, record_cost
from topics.clock import until_tick
from topics.errors import Unavailable
from topics.records import Record

log: Final = logging.getLogger(__name__)

#: Seconds until a write is retried while RocksDB is behind.
STALL_RETRY: Final = 0.005
#: The most iterations of the loop for which a group waits while each of them brings more.
GATHERED: Final = 8
SPACE_RETRY: Final = 0.5
#: Groups between two that name the topics: each table has several.
TOPICS_GROUPS: Final = 16
#: Appended to the error of items whose sync failed.
UNCERTAIN: Final = "; the write may still succeed"


class GroupWriter:
    """Writes groups of records and trims to the database; the only writer of the log.

    Loop only, except `_run_syncs`, `_revive` and `_sync_group`, which its own thread runs.
    """

    def __init__(
        self,
        store: Store,
        published: Callable[[Group], None],
        topics: Callable[[], Mapping[bytes, bytes]],
        *,
        sync: bool,
        queue_bytes: int,
        now_ms: Callable[[], int],
        marks: Marks | None = None,
    ) -> None:
        self.failure: BaseException | None = None
        self._store = store
        self._published = published
        self._topics = topics
        self._sync = sync
        self._limit = queue_bytes
        self._now_ms = now_ms
        self._marks = marks
        #: Work for the thread, None to end it. An executor would cost a future and its locks for each item.
        self._syncs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._syncer = Thread(target=self._run_syncs, name="log-sync", daemon=True)
        self._syncer.start()
        self._queue = Queue()
        self._superseded = Superseded()
        self._in_flight: Group | None = None
        self._scheduled = False
        #: Whether an item of the queue has a waiter.
        self._awaited = False
        #: Items that were ever queued.
        self._put = 0
        self._delayed: asyncio.TimerHandle | None = None
        #: Why bounded appends are refused now.
        self._refusal: Unavailable | None = None
        #: Partitions in which failed groups may have left records.
        self._spoiled: set[Partition] = set()
        marker = store.get(layout.MARKER_KEY)
        self._number = layout.unpack_marker(marker) if marker else 0
        self._name = store.name()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the first append."""
        return asyncio.get_running_loop()

    @property
    def refusal(self) -> str | None:
        """Why bounded appends are refused, because the disk is full or failing; None while groups are written."""
        return None if self._refusal is None else str(self._refusal)

    @property
    def queued_bytes(self) -> int:
        return self._queue.bytes + (self._in_flight.bytes if self._in_flight else 0)

    def append(
        self,
        partition: Partition,
        key: bytes | None,
        value: bytes | None,
        *,
        bounded: bool,
        project: str = "",
        content: Record | None = None,
    ) -> asyncio.Future[Ack]:
        """Queue a record; its future resolves once it is durable. Bounded ones take turns by `project`.

        Raises:
            Unavailable: the append is bounded, and the queue or disk is full or the disk fails; nothing is queued.
            LogError: the log failed for good.
        """
        size = record_cost(key, value)
        if bounded:
            if self._refusal is not None:
                raise _copy_of(self._refusal)
            if self.queued_bytes + size > self._limit:
                raise Unavailable("the log's queue is full")
        future: asyncio.Future[Ack] = self._loop.create_future()
        self.put(Append(partition, key, value, future, not bounded, size, content=content), project)
        return future

    async def flush(self) -> None:
        """Wait until all items queued before are durable.

        Raises:
            Unavailable: the disk is full or fails; unbounded records stay queued.
            LogError: the log failed for good.
        """
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure
        barrier = Barrier(self._loop.create_future())
        if self._in_flight is not None and not self._queue:
            self._in_flight.items.append(barrier)
            await barrier.future
        elif self._queue:
            if self._refusal is not None:
                raise _copy_of(self._refusal)
            self.put(barrier)
            await barrier.future

    def put(self, item: Item, project: str = "") -> None:
        """Queue an item; raise LogError if the log failed for good."""
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure
        self._queue.put(item, project)
        self._put += 1
        self._awaited = self._awaited or item.future is not None or (type(item) is Append and item.durable is not None)
        if self._in_flight is None:
            self._schedule()

    def _schedule(self) -> None:
        if self._awaited or self._queue.bytes >= GROUP_BYTES:
            self._write_soon()
        elif self._delayed is None:
            # A sync is what costs most: items without a waiter wait for the next group.
            self._delayed = self._loop.call_later(until_tick(self._loop.time()), self._write_soon)

    def _write_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._gather, self._put, GATHERED)

    def _gather(self, before: int, iterations: int) -> None:
        """Write once an iteration of the loop has brought nothing more: what came together is written together."""
        if self._put > before and iterations:
            self._loop.call_soon(self._gather, self._put, iterations - 1)
        else:
            self._write_group()

    def _write_group(self) -> None:
        self._scheduled = False
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None
        if self.failure is not None:
            return
        if self._store.is_stopped:
            self._scheduled = True
            self._syncs.put(self._revive)
            return
        group = Group(self._number + 1, self._now_ms(), self._name)
        if self._number % TOPICS_GROUPS == 0:
            for key, value in self._topics().items():
                group.batch.put(key, value)
        try:
            self._undo(group)
            self._queue.fill(group)
            self._awaited = self._awaited and bool(self._queue)
            for key in self._superseded.stale:
                group.batch.delete(key)
            for key, value in self._store.deletions.note(self._deleted(group)).items():
                group.batch.put(key, value)
            self._store.write(group.batch)
            self._superseded.stale.clear()
        except Stalled:
            group.withdraw()
            self._queue.put_back(group.items)
            self._write_later(STALL_RETRY)
            return
        except Exception as error:
            self._on_failed(group, error)
            return
        self._in_flight = group
        if self._sync:
            self._syncs.put(partial(self._sync_group, group))
        else:
            self._on_synced(group, None)

    def _deleted(self, group: Group) -> Iterator[bytes]:
        """Yield deleted keys of a group, at least one of each range that `deletions` notes."""
        yield from self._superseded.stale
        for item in group.items:
            if type(item) is Removal:
                for offset in range(item.since, item.before, NOTED_OFFSETS):
                    yield item.partition.key(offset)
                yield item.partition.key(item.before - 1)
        for partition in self._spoiled:  # See `_undo`.
            yield partition.key(partition.end)
            yield partition.key(partition.end + GROUP_ITEMS)

    async def move(self, keys: Sequence[bytes], size: int) -> None:
        """Rewrite existing records of together `size` bytes, so that they leave the file that holds them.

        Raises:
            Unavailable: the disk is full or fails.
            LogError: the log failed for good.
        """
        move = Move(keys, self._store.get, size, self._loop.create_future())
        self.put(move)
        await move.future

    def _write_later(self, seconds: float) -> None:
        self._scheduled = self._awaited = True
        self._loop.call_later(seconds, self._write_group)

    def _run_syncs(self) -> None:
        wake_promptly(LOOP_SLICE)
        while (sync := self._syncs.get()) is not None:
            sync()

    def _revive(self) -> None:
        """Reopen the database if there is room. Runs in the sync thread."""
        try:
            error: Exception | None = None if self._store.revive() else DiskFull(DISK_FULL)
        except Exception as caught:
            error = caught
        self._loop.call_soon_threadsafe(self._on_revived, error)

    def _on_revived(self, error: Exception | None) -> None:
        if error is None:
            self._write_group()
        elif isinstance(error, Unavailable):
            self._refuse(error)
        else:
            self._on_failed(Group(self._number + 1, 0), error)

    def _refuse(self, reason: Unavailable) -> None:
        """Refuse bounded appends until the disk recovers, and retry soon."""
        self._refusal = _copy_of(reason)
        self._queue.fail_not_lasting(self._refusal)
        self._write_later(SPACE_RETRY)

    def _sync_group(self, group: Group) -> None:
        error = None
        try:
            self._store.sync()
        except Exception as caught:
            error = caught
        self._loop.call_soon_threadsafe(self._on_synced, group, error)

    def _on_synced(self, group: Group, error: Exception | None) -> None:
        self._in_flight = None
        if error is not None:
            self._on_failed(group, error, UNCERTAIN)
            return
        self._refusal = None
        self._spoiled.clear()
        self._number += 1
        if self._marks is not None:
            self._marks.note_group(self._number)
        self._superseded.note(group.records)
        group.publish()
        self._published(group)
        if self._queue:
            self._schedule()

    def _on_failed(self, group: Group, error: Exception, added: str = "") -> None:
        """Fail the futures of an invisible group, and requeue its lasting items."""
        self._spoiled |= group.withdraw()
        if not isinstance(error, Unavailable):
            self.failure = error
            log.critical("the log cannot go on: %s", error)
            fail_items(group.items, error)
            self._queue.drop(error)
            return
        fail_items((item for item in group.items if not item.lasting), _copy_of(error, added))
        self._queue.put_back(item for item in group.items if item.lasting)
        self._refuse(error)

    def _undo(self, group: Group) -> None:
        """Delete the remains of failed groups: the database has a write that failed at the sync."""
        for partition in self._spoiled:
            group.batch.delete_range(partition.key(partition.end), partition.key(layout.MAX_OFFSET))

    async def close(self) -> None:
        """Write the queue, then refuse appends; items that the disk does not accept fail with LogError."""
        try:
            await self.flush()
        except (Unavailable, LogError) as error:
            log.warning("the log closes with %d bytes unwritten: %s", self.queued_bytes, error)
        closed = LogError("the log is closed")
        self.failure = self.failure or closed
        self._queue.drop(closed)
        self._syncs.put(None)
        await asyncio.to_thread(self._syncer.join)


def _copy_of(error: Unavailable, added: str = "") -> Unavailable:
    # An exception raised twice collects the frames of both raises.
    copy = type(error)(f"{error}{added}", error.retry_after)
    copy.uncertain = bool(added)
    return copy
