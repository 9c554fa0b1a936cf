"""RocksDB on a disk that may be full.

A RocksDB that met a full disk is opened again. Its own way back looks for room for a whole write buffer every 5 s, and
may leave a write-ahead log to which nothing can be appended (facebook/rocksdb#12998). Meanwhile a second opening, for
reading, gives what was written.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocksdict import AccessType, Options, Rdict

from topics.errors import Unavailable

#: A database is opened again when there is room for all that its write-ahead log may hold, and for this.
MARGIN_BYTES: Final = 4 * 1024 * 1024
#: Seconds that a thread may need for a read that it has begun.
READ_SECONDS: Final = 0.02
_FULL: Final = ("No space left on device", "Disk quota exceeded")
#: RocksDB's words for damaged or missing files.
_DAMAGE: Final = ("Corruption", "No such file or directory")
#: The lock's words while somebody still reads from the earlier opening.
_IN_USE: Final = "lock hold by current process"


class DiskFull(Unavailable):
    """The disk is full, or the quota is used up."""

    def __init__(self, message: str = "the disk is full", retry_after: int = 5) -> None:
        super().__init__(message, retry_after)


class DatabaseFailed(Unavailable):
    """A database cannot be read or written now: too many open files, a fault of the disk, or it is closed."""


class DatabaseDamaged(DatabaseFailed):
    """The files of a database are damaged: it has to be rebuilt."""


def is_full(error: object) -> bool:
    return any(sign in str(error) for sign in _FULL)


def failure_of(error: object) -> DatabaseFailed:
    """Return what an error of RocksDB other than a full disk means: damage, or a fault that may pass."""
    text = str(error)
    return (DatabaseDamaged if any(sign in text for sign in _DAMAGE) else DatabaseFailed)(text)


class DiskDatabase:
    """A database that refuses writes once its disk is full, until `revive` finds room; it can be read all the time.

    Any thread. RocksDB's own exceptions pass through, except those of a full disk.
    """

    def __init__(self, path: Path, options: Callable[[], Options]) -> None:
        self._path = path
        self._options = options
        #: Everybody reads from this; only `write` writes to it.
        self.rocks = Rdict(str(path), options())
        #: Why nothing is written until it is opened again: what RocksDB said, mostly of a full disk. Else None.
        self.full: str | None = None
        self._reads_only = False
        self._closed = False
        #: Held while it is opened again or closed.
        self._lock = threading.Lock()

    def write(self, write: Callable[[Rdict], object]) -> None:
        """Let `write` write to the database.

        Raises:
            DiskFull: the disk is full; a write-ahead log that is not synced may have it nevertheless.
            DatabaseFailed: the database waits until it is opened again.
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
        """Open the database again if there is room, and return whether it takes writes; for a worker thread."""
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

    def _replace(self, opened: Rdict) -> None:
        # Readers have the new one before the old one ends; an iterator keeps the old one open for as long as it lives.
        before, self.rocks = self.rocks, opened
        time.sleep(READ_SECONDS)
        with suppress(Exception):  # The flush that has failed before fails again.
            before.close()

    def _has_room(self) -> bool:
        try:
            disk = os.statvfs(self._path)
        except FileNotFoundError:  # Somebody has removed it.
            return False
        logs = 0
        for file in self._path.glob("*.log"):
            with suppress(FileNotFoundError):  # It was written to tables meanwhile.
                logs += file.stat().st_size
        return disk.f_bavail * disk.f_frsize >= logs + MARGIN_BYTES

    def close(self) -> None:
        """Close the database; its write-ahead log has all writes, even if the last flush fails."""
        with self._lock:
            self._closed = True
            if self.full is None and not self._has_room():
                # Closed without a flush: it would fail, and RocksDB takes a second to get over that.
                del self.rocks
                return
            try:
                self.rocks.close()
            except Exception as error:
                if self.full is None and not is_full(error):
                    raise
