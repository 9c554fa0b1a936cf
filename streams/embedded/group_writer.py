"""Group commit: items gather while the group before them is synced; one write and one fdatasync a group.

The write is made in the event loop, because the binding holds the interpreter lock meanwhile in any thread; only
the sync, which releases the lock, runs in a thread. So a lone append costs one fdatasync and two thread switches, and a
busy loop writes larger groups.

A full disk, or a fault of it, fails the group that meets it, and all bounded appends that wait. Once there
is room the database is opened again (`DiskDatabase`), and the next group first removes what failed ones may have left:
a group that failed at the sync may be in the write-ahead log as a whole, and come back if the process dies before.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Final

from streams.disk import DiskFull
from streams.embedded import layout
from streams.embedded.errors import LogError
from streams.embedded.groups import GROUP_BYTES, Append, Barrier, Group, Item, Queue, fail_items, item_cost, record_cost
from streams.embedded.log_store import DISK_FULL, Stalled, Store
from streams.embedded.marks import Marks
from streams.embedded.partition import Partition
from streams.log import Ack
from topics.errors import Unavailable

log: Final = logging.getLogger(__name__)

#: Seconds until a write is tried again: RocksDB is behind, the disk is full or fails.
STALL_RETRY: Final = 0.005
#: Seconds that items for which nobody waits may wait for others: syncs are what a busy log spends most on.
PATIENCE: Final = 0.02
#: Seconds from one group to the next at least, for each record of it, and at most: a lone client hardly waits, and a
#: busy log writes few large groups.
PACE: Final = 0.0005
SLOWEST_PACE: Final = 0.005
#: The same where several sessions have records: what they append within this time is written and folded at once.
GATHER: Final = 0.003
SPACE_RETRY: Final = 0.5
#: What is said of items whose sync failed, behind the reason.
UNCERTAIN: Final = "; it may still take the record"


class GroupWriter:
    """Writes groups of records and trims to the database: the only way into the log.

    Loop only, except `_run_syncs`, `_revive` and `_sync_group`, which its own thread runs.
    """

    def __init__(
        self,
        store: Store,
        published: Callable[[Group], None],
        *,
        sync: bool,
        queue_bytes: int,
        clock: Callable[[], float],
        marks: Marks | None = None,
    ) -> None:
        self.failure: BaseException | None = None
        self._store = store
        self._published = published
        self._sync = sync
        self._limit = queue_bytes
        self._clock = clock
        self._marks = marks
        #: What the thread does next, None at the end. An executor would take a future and its locks for each.
        self._syncs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._syncer = Thread(target=self._run_syncs, name="log-sync", daemon=True)
        self._syncer.start()
        self._queue = Queue()
        self._in_flight: Group | None = None
        self._scheduled = False
        #: Somebody waits for an item of the queue.
        self._awaited = False
        self._paced_until = 0.0
        #: Keys of the records of the last group.
        self._keys: set[bytes | None] = set()
        self._delayed: asyncio.TimerHandle | None = None
        #: Why nothing is taken for now.
        self._refusal: Unavailable | None = None
        #: Where failed groups may have left something in the database.
        self._spoiled: set[Partition] = set()
        marker = store.get(layout.MARKER_KEY)
        self._number = layout.unpack_marker(marker) if marker else 0

    @property
    def refusal(self) -> str | None:
        """What was said when the disk was found full or failed, None while it takes groups."""
        return None if self._refusal is None else str(self._refusal)

    @property
    def queued_bytes(self) -> int:
        return self._queue.bytes + (self._in_flight.bytes if self._in_flight else 0)

    def append(
        self, partition: Partition, key: bytes | None, value: bytes | None, *, bounded: bool
    ) -> asyncio.Future[Ack]:
        """Queue a record; its future resolves once it is durable.

        Raises:
            Unavailable: `bounded`, and the queue or the disk is full, or it fails; the record is not queued.
            LogError: the log failed for good.
        """
        size = record_cost(key, value)
        if bounded:
            if self._refusal is not None:
                raise _copy_of(self._refusal)
            if self.queued_bytes + size > self._limit:
                raise Unavailable("the log's queue is full")
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._put(Append(partition, key, value, future, not bounded), size)
        return future

    def put(self, item: Item) -> None:
        """Queue an item that nobody waits for; raise LogError if the log failed for good."""
        self._put(item, item_cost(item))

    async def flush(self) -> None:
        """Wait until all that was queued before is durable.

        Raises:
            Unavailable: the disk is full or fails; records that nobody waits for stay queued.
            LogError: the log failed for good.
        """
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure
        barrier = Barrier(asyncio.get_running_loop().create_future())
        if self._in_flight is not None and not self._queue:
            self._in_flight.items.append(barrier)
            await barrier.future
        elif self._queue:
            if self._refusal is not None:
                raise _copy_of(self._refusal)
            self._put(barrier, 0)
            await barrier.future

    def _put(self, item: Item, size: int) -> None:
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure
        self._queue.put(item, size)
        self._awaited = self._awaited or item.future is not None
        if self._in_flight is None:
            self._schedule()

    def _schedule(self) -> None:
        if self._awaited or self._queue.bytes >= GROUP_BYTES:
            self._write_soon()
        elif self._delayed is None:
            self._delayed = asyncio.get_running_loop().call_later(PATIENCE, self._write_soon)

    def _write_soon(self) -> None:
        # Not at once, so that what the loop appends in this turn goes in one group.
        if not self._scheduled:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            early = self._paced_until - loop.time()
            if early > 0:
                loop.call_later(early, self._write_group)
            else:
                loop.call_soon(self._write_group)

    def _write_group(self) -> None:
        self._scheduled = False
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None
        if self.failure is not None:
            return
        if self._store.is_stopped:
            self._scheduled = True
            self._syncs.put(partial(self._revive, asyncio.get_running_loop()))
            return
        group = Group(self._number + 1, int(self._clock() * 1000))
        try:
            self._undo(group)
            self._queue.fill(group)
            self._awaited = self._awaited and bool(self._queue)
            self._store.write(group.batch)
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
            loop = asyncio.get_running_loop()
            self._paced_until = loop.time() + self._pace(group)
            self._syncs.put(partial(self._sync_group, group, loop))
        else:
            self._on_synced(group, None)

    def _pace(self, group: Group) -> float:
        keys = {record.key for _, record in group.records}
        several, self._keys = len(keys | self._keys) > 1, keys
        return max(GATHER if several else 0.0, min(SLOWEST_PACE, PACE * len(group.records)))

    def _write_later(self, seconds: float) -> None:
        self._scheduled = self._awaited = True
        asyncio.get_running_loop().call_later(seconds, self._write_group)

    def _run_syncs(self) -> None:
        while (sync := self._syncs.get()) is not None:
            sync()

    def _revive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the database again, if there is room; in the sync thread."""
        try:
            error: Exception | None = None if self._store.revive() else DiskFull(DISK_FULL)
        except Exception as caught:
            error = caught
        loop.call_soon_threadsafe(self._on_revived, error)

    def _on_revived(self, error: Exception | None) -> None:
        if error is None:
            self._write_group()
        elif isinstance(error, Unavailable):
            self._refuse(error)
        else:
            self._on_failed(Group(self._number + 1, 0), error)

    def _refuse(self, reason: Unavailable) -> None:
        """Take nothing but what must be written until the disk does, and try again soon."""
        self._refusal = _copy_of(reason)
        self._queue.fail_not_lasting(self._refusal)
        self._write_later(SPACE_RETRY)

    def _sync_group(self, group: Group, loop: asyncio.AbstractEventLoop) -> None:
        error = None
        try:
            self._store.sync()
        except Exception as caught:
            error = caught
        loop.call_soon_threadsafe(self._on_synced, group, error)

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
        group.publish()
        self._published(group)
        if self._queue:
            self._schedule()

    def _on_failed(self, group: Group, error: Exception, added: str = "") -> None:
        """Nothing of the group is visible: fail the futures, and keep what must be written."""
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
        """Remove what failed groups may have left: a write can fail at the sync, when the database has taken it."""
        for partition in self._spoiled:
            group.batch.delete_range(partition.key(partition.end), partition.key(layout.MAX_OFFSET))

    async def close(self) -> None:
        """Write what is queued, then refuse all else; what the disk does not take is lost with LogError."""
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
    # An exception raised twice collects the frames of both.
    return type(error)(f"{error}{added}", error.retry_after)
