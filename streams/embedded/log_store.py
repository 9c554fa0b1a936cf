"""The RocksDB under the log: its options, how it opens after a crash, and its errors by name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from streams.disk import DatabaseDamaged, DatabaseFailed, DiskDatabase, DiskFull, failure_of, is_full
from streams.embedded import layout
from streams.embedded.errors import WAYS, LogDamaged, LogError, LogLocked

MIB: Final = 1024 * 1024
DISK_FULL: Final = "the disk under the log is full"
#: Bytes of a log that is read as a whole when it is opened.
SMALL: Final = 64 * MIB
_LOCKED: Final = ("lock hold by current process", "While lock file")
#: How errors of the machine begin: too many open files, a fault of the disk. They may pass, unless they are damage.
_PASSING: Final = "IO error"


#: How RocksDB reads a write-ahead log: up to a last write that is cut off, or up to any damage.
TOLERANT: Final = DBRecoveryMode.tolerate_corrupted_tail_records()
PREFIX: Final = DBRecoveryMode.point_in_time()


class Stalled(Exception):
    """RocksDB asks writers to wait for its background work."""


def options(recovery: DBRecoveryMode) -> Options:
    """Return how the database is laid out.

    Values from 4 KiB live in blob files, which compaction does not rewrite: 2.2 bytes written per byte of 16 KiB
    records, write-ahead log included, against 3.2 in plain tables.
    """
    opts = Options(raw_mode=True)
    opts.create_if_missing(True)
    opts.set_wal_recovery_mode(recovery)
    opts.set_write_buffer_size(32 * MIB)
    opts.set_max_write_buffer_number(3)
    opts.set_max_background_jobs(2)
    opts.set_compression_type(DBCompressionType.none())
    opts.set_enable_blob_files(True)
    opts.set_min_blob_size(4096)
    opts.set_blob_file_size(32 * MIB)
    opts.set_blob_compression_type(DBCompressionType.none())
    opts.set_enable_blob_gc(True)
    opts.set_max_open_files(256)
    opts.set_keep_log_file_num(4)
    opts.set_max_log_file_size(4 * MIB)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(8 * MIB))
    opts.set_block_based_table_factory(table)
    return opts


class Store:
    """An open database. Any thread.

    Each method raises LogError where the database is damaged, closed or fails for good, and Unavailable while it or its
    disk cannot be used now.
    """

    def __init__(self, db: DiskDatabase) -> None:
        self._db = db
        #: Some of it has not been read since the start, so it may be damaged.
        self.is_unread = False
        # A write holds the interpreter lock, so it must neither wait for the disk (that is `sync`) nor for RocksDB.
        self._no_wait = WriteOptions()
        self._no_wait.sync = False
        self._no_wait.no_slowdown = True

    @classmethod
    def open(cls, path: Path, group: int = 0, name: bytes | None = None, *, whole: bool = False) -> Store:
        """Open or create the database; a torn last group is dropped.

        Nothing is created, deleted or cut before it is known that all is there: up to `group`, in the log `name`.
        The values of a large log are read only if `whole` asks for it.

        Raises:
            LogError: damaged, unreadable or incomplete, or written by a version this one does not know.
        """
        recovery = check(path, group, name, whole=whole)
        is_unread = not whole and _size(path, "*.sst", "*.blob") > SMALL
        try:
            db = DiskDatabase(path, lambda: options(recovery))
        except Exception as error:
            raise _unreadable(path, error) from error
        store = cls(db)
        store.is_unread = is_unread
        try:
            store._check_format(path)
        except BaseException:
            db.close()
            raise
        return store

    def name(self) -> bytes:
        """Return what tells this log from all others; it is chosen once."""
        name = self.get(layout.NAME_KEY)
        if name is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(layout.NAME_KEY, name := os.urandom(16))
            self.write_patiently(batch)
            self.sync()
        return name

    def _check_format(self, path: Path) -> None:
        version = self.get(layout.FORMAT_KEY)
        if version is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(layout.FORMAT_KEY, layout.FORMAT)
            self.write_patiently(batch)
            self.sync()
        elif version != layout.FORMAT:
            raise LogError(
                f"the log in {path} has format {version.decode(errors='replace')}, this version reads format "
                f"{layout.FORMAT.decode()}: use the version that wrote it, or another data directory"
            )

    def write(self, batch: WriteBatch) -> None:
        """Apply a batch, whole or not at all; it survives the process, and the machine after the next `sync`.

        After Unavailable nothing is written until `revive`.

        Raises:
            Stalled: RocksDB is behind; nothing was written.
        """
        self._change(lambda db: db.write(batch, self._no_wait))

    def _change(self, change: Callable[[Rdict], object]) -> None:
        try:
            self._db.write(change)
        except DatabaseFailed:
            raise
        except Exception as error:
            failure = _log_error(error)
            if isinstance(failure, DatabaseFailed):
                # RocksDB takes nothing more after a fault of the disk, until it is opened again.
                self._db.full = str(failure)
            raise failure from error

    def write_patiently(self, batch: WriteBatch) -> None:
        """Apply a batch as `write` does, and wait while RocksDB is behind; not for the event loop."""
        while True:
            try:
                return self.write(batch)
            except Stalled:
                time.sleep(0.005)

    def sync(self) -> None:
        """Wait until all that was written is on the disk (fdatasync of the write-ahead log); other threads run on."""
        self._change(lambda db: db.flush_wal(True))

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.rocks.get(key)
        except Exception as error:
            raise _log_error(error) from error
        return value

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys in [start, stop) with values, in order."""
        reading = ReadOptions()
        reading.set_iterate_upper_bound(stop)
        try:
            cursor = self._db.rocks.iter(reading)
            cursor.seek(start)
            while cursor.valid():
                yield cursor.key(), cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            raise _log_error(error) from error

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the highest key in [start, stop] with its value, None where there is no key."""
        try:
            cursor = self._db.rocks.iter()
            cursor.seek_for_prev(stop)
            cursor.status()
            if cursor.valid() and cursor.key() >= start:
                return cursor.key(), cursor.value()
        except Exception as error:
            raise _log_error(error) from error
        return None

    def reclaim(self, start: bytes, stop: bytes) -> None:
        """Give the disk space of deleted keys in [start, stop) back; takes long, other threads run on."""
        self._change(lambda db: db.compact_range(start, stop))

    @property
    def is_stopped(self) -> bool:
        """Whether the database takes no writes until `revive`, because the disk was full or failed."""
        return self._db.full is not None

    def revive(self) -> bool:
        """Open the database again after a fault of the disk, once there is room; return whether it takes writes."""
        try:
            return self._db.revive()
        except Exception as error:
            raise _log_error(error) from error

    def close(self) -> None:
        """Close the database; what was written is kept in the write-ahead log even when the last flush fails."""
        try:
            self._db.close()
        except Exception as error:
            raise _log_error(error) from error


def _log_error(error: Exception) -> Exception:
    """Return what an error of the database means to the log: no space, a stall, damage, or a fault that may pass."""
    text = str(error)
    if isinstance(error, DiskFull):
        return DiskFull(DISK_FULL)
    if text.startswith(("Operation timed out", "Result incomplete")):
        return Stalled(text)
    failure = failure_of(text)
    if isinstance(failure, DatabaseDamaged):
        return LogDamaged(f"the log is damaged ({text}): stop the service; then {WAYS}")
    if not text.startswith(_PASSING):
        return LogError(f"the log's database failed: {text}")
    # Clients are shown it: they need not know the directory.
    return DatabaseFailed(f"the log's database fails now: {re.sub(r'/[^ :]*/', '', text)}")


def _unreadable(path: Path, error: Exception) -> LogError:
    if is_full(error):
        return LogError(f"the log in {path} cannot be opened, its disk is full: make room and start again")
    if any(sign in str(error) for sign in _LOCKED):
        return LogLocked(f"the log in {path} is open in another process")
    if "Permission denied" in str(error):
        return LogError(f"the log in {path} cannot be opened ({error}): the user of the service must own its files")
    said = " ".join(str(error).split())  # It may have several lines.
    if said.startswith(_PASSING) and not isinstance(failure_of(said), DatabaseDamaged):
        return LogError(f"the log in {path} cannot be read now ({said}): start again; if that does not help, {WAYS}")
    return LogDamaged(f"the log in {path} is damaged ({said}): {WAYS}")


def check(
    path: Path, group: int = 0, name: bytes | None = None, *, whole: bool = False, shown: Path | None = None
) -> DBRecoveryMode:
    """Look whether a log is all there, without a change of its files; return how it is to be opened.

    It had `group` groups, and the name `name` if one is known. `whole` reads all of it, also if it is large. Errors
    name the path `shown`, if that is another one.

    Raises:
        LogDamaged: something is missing or damaged, or it is another log.
        LogError: it cannot be read for another reason.
    """
    log = f"the log in {shown or path}"
    if not (path / "CURRENT").exists():
        if any(path.glob("[0-9]*")):  # RocksDB would delete them.
            raise LogDamaged(f"{log} is damaged, its file CURRENT is missing: {WAYS}")
        if group or name:
            raise LogDamaged(f"{log} is missing, although there was one: {WAYS}")
        return TOLERANT
    recovery = TOLERANT
    try:
        there = _look(path, TOLERANT, whole)
    except Exception as error:
        torn = _last_group_torn(path, whole) if "Corruption" in str(error) else None
        if torn is None:
            raise _unreadable(shown or path, error) from error
        there, recovery = torn, PREFIX
    if there.group < group:
        raise LogDamaged(f"{log} ends at write {there.group}, and there were {group}: {WAYS}")
    if name is not None and there.name != name:
        raise LogDamaged(f"{log} is not the one that the database belongs to: {WAYS}")
    return recovery


class _There(NamedTuple):
    """What a log has: the number of its last group, and its name."""

    group: int
    name: bytes | None


def _look(path: Path, recovery: DBRecoveryMode, whole: bool = False) -> _There:
    """Read what a log has without a change of its files; a small one is read as a whole, which finds damage."""
    db = Rdict(str(path), options(recovery), access_type=AccessType.read_only(False))
    try:
        # RocksDB looks for tables when it opens, and for files of values only when it reads them.
        values, noted = _size(path, "*.blob"), db.property_int_value("rocksdb.total-blob-file-size") or 0
        if values < noted:
            raise ValueError(f"its .blob files have {values} bytes, and had {noted}")
        marker = db.get(layout.MARKER_KEY)
        if whole or _size(path, "*.sst", "*.blob") <= SMALL:
            cursor = db.iter()
            cursor.seek_to_first()
            while cursor.valid():
                cursor.next()
            cursor.status()
        return _There(layout.unpack_marker(marker) if marker else 0, db.get(layout.NAME_KEY))
    finally:
        db.close()


def _size(path: Path, *kinds: str) -> int:
    return sum(file.stat().st_size for kind in kinds for file in path.glob(kind))


def _last_group_torn(path: Path, whole: bool) -> _There | None:
    """Return what a log has whose last write a power cut tore; None where what was acknowledged is damaged.

    A group is written only after the one before it was synced. So when the readable prefix ends at group n and no
    marker beyond n + 1 is on the disk, at most one group that was never acknowledged is lost.
    """
    try:
        there = _look(path, PREFIX, whole)
        written = max((layout.last_marker(file.read_bytes()) for file in path.glob("*.log")), default=0)
    except Exception:
        return None
    return there if written <= there.group + 1 else None
