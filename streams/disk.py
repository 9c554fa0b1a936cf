"""RocksDB on a disk that may be full.

After a full disk, the database is reopened. RocksDB's own recovery checks for a whole free write buffer every 5 s, and
may leave a write-ahead log that accepts no appends (facebook/rocksdb#12998). Until then, a read-only instance serves
reads.
"""

import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocksdict import AccessType, Options, Rdict, RdictIter, ReadOptions, Snapshot, WriteBatch

from streams.erasure import NOTED, Deletions, rewrite
from topics.errors import Unavailable

#: Room needed, besides the size of the write-ahead log, to reopen a database.
MARGIN_BYTES: Final = 4 * 1024 * 1024
#: Seconds for threads to finish reads they have begun.
READ_SECONDS: Final = 0.02
_FULL: Final = ("No space left on device", "Disk quota exceeded")
#: RocksDB's error texts for damaged or missing files.
_DAMAGE: Final = ("Corruption", "No such file or directory")
#: Files with data: tables, write-ahead logs and blob files. Those of an interrupted creation have none of them.
FILLED: Final = "[0-9]*.[slb]*"
#: RocksDB's error text while a reader still uses the earlier instance.
_IN_USE: Final = "lock hold by current process"


class DiskFull(Unavailable):
    """The disk is full, or the quota is used up."""

    def __init__(self, message: str = "the disk is full", retry_after: int = 5) -> None:
        super().__init__(message, retry_after)


class DatabaseFailed(Unavailable):
    """A database cannot be used now: too many open files, a disk fault, or it is closed."""


class DatabaseDamaged(DatabaseFailed):
    """The files of a database are damaged, so it must be rebuilt."""


def is_full(error: object) -> bool:
    return any(sign in str(error) for sign in _FULL)


def failure_of(error: object) -> DatabaseFailed:
    """Translate an error of RocksDB other than a full disk: damage, or a fault that may pass."""
    # Clients see this text, so it must not reveal directories.
    text = re.sub(r"(?<!\S)/[^:]*/", "", str(error))
    return (DatabaseDamaged if any(sign in text for sign in _DAMAGE) else DatabaseFailed)(text)


def iterate(rocks: Rdict | Snapshot, lower: bytes, upper: bytes) -> RdictIter:
    """Return a cursor that sees the keys of [lower, upper), at the first of them."""
    bounds = ReadOptions()
    bounds.set_iterate_lower_bound(lower)
    bounds.set_iterate_upper_bound(upper)
    cursor = rocks.iter(bounds)
    cursor.seek(lower)
    return cursor


def scan(rocks: Rdict | Snapshot, lower: bytes = b"", upper: bytes = b"\xff") -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys of [lower, upper) with their values, in order; RocksDB's exceptions pass through."""
    cursor = iterate(rocks, lower, upper)
    try:
        while cursor.valid():
            yield cursor.key(), cursor.value()
            cursor.next()
        cursor.status()
    finally:
        del cursor  # An exception keeps this frame, and a cursor keeps the database open.


class DiskDatabase:
    """Wraps a database: once its disk is full, refuses writes until `revive` finds room. Reads always work.

    Any thread. RocksDB's own exceptions pass through, except those of a full disk.
    """

    def __init__(self, path: Path, options: Callable[[], Options], noted_bytes: int) -> None:
        """Open or create a database that notes deleted keys by their first `noted_bytes` bytes."""
        self._path = path
        self._options = options
        #: For reads by all callers; only `write` writes to it.
        self.rocks = Rdict(str(path), options())
        #: Where rows were deleted that `erase` has not erased.
        try:
            self.deletions = Deletions(noted_bytes, self.noted())
        except BaseException:
            self.rocks.close()
            raise
        #: RocksDB's error that stopped writes, usually a full disk; None while writes are accepted.
        self.full: str | None = None
        self._reads_only = False
        self._closed = False
        #: Held by `revive`, `erase` and `close`.
        self._lock = threading.Lock()

    def write(self, write: Callable[[Rdict], object]) -> None:
        """Call `write` with the database.

        Raises:
            DiskFull: the disk is full; an unsynced write-ahead log may still contain the write.
            DatabaseFailed: the database must be reopened first.
        """
        if self.full is not None:
            raise DiskFull if is_full(self.full) else failure_of(self.full)
        try:
            write(self.rocks)
        except Exception as error:
            if not is_full(error):
                raise
            self.full = str(error)
            raise DiskFull from error

    def revive(self) -> bool:
        """Reopen the database if there is room; return whether it accepts writes. For a worker thread."""
        with self._lock:
            if self.full is None or self._closed:
                return not self._closed
            if not self._reads_only:
                self._replace(Rdict(str(self._path), self._options(), access_type=AccessType.read_only(False)))
                self._reads_only = True
            if not self._has_room():
                return False
            try:
                opened = Rdict(str(self._path), self._options())
            except Exception as error:
                if is_full(error) or _IN_USE in str(error):
                    return False
                raise
            self._replace(opened)
            self._reads_only, self.full = False, None
            return True

    def noted(self) -> list[bytes]:
        """Return the rows of `deletions`."""
        return [key for key, _ in scan(self.rocks, NOTED, NOTED + b"\xff")]

    def rewrite(self, starts: Collection[bytes]) -> bool:
        """Call `erasure.rewrite`; return False if the database closes or its disk is full. For a worker thread."""
        with self._lock:
            return rewrite(self.rocks, starts, lambda: self._closed or self.full is not None)

    def forget(self, noted: Iterable[bytes]) -> None:
        """Delete rows of `deletions` whose ranges were rewritten since `deletions.begin`."""
        batch = WriteBatch(raw_mode=True)
        for row in noted:
            batch.delete(row)
        self.write(lambda rocks: rocks.write(batch))

    def _replace(self, opened: Rdict) -> None:
        # Readers get the new instance before the old one closes; an iterator keeps the old one open while it lives.
        before, self.rocks = self.rocks, opened
        time.sleep(READ_SECONDS)
        with suppress(Exception):  # The failed flush fails again.
            before.close()

    def _has_room(self) -> bool:
        try:
            free = shutil.disk_usage(self._path).free
        except FileNotFoundError:  # The directory was removed.
            return False
        logs = 0
        for file in self._path.glob("*.log"):
            with suppress(FileNotFoundError):  # RocksDB flushed and deleted it meanwhile.
                logs += file.stat().st_size
        return free >= logs + MARGIN_BYTES

    def close(self) -> None:
        """Close the database; the write-ahead log has all writes even if the last flush fails."""
        self._closed = True
        with self._lock:
            if self.full is None and not self._has_room():
                # Closed without a flush, which would fail after a second.
                del self.rocks
                return
            try:
                self.rocks.close()
            except Exception as error:
                if self.full is None and not is_full(error):
                    raise
