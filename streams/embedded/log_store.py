"""The RocksDB under the log: its options, its opening after a crash, and its errors."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
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
    WriteBatch,
    WriteOptions,
)

from streams.disk import FILLED, DatabaseDamaged, DatabaseFailed, DiskDatabase, DiskFull, failure_of, is_full, scan
from streams.embedded import blobs, layout
from streams.embedded.errors import REMEDIES, LogDamaged, LogError, LogLocked
from streams.sequence import gap

MIB: Final = 1024 * 1024
DISK_FULL: Final = "the disk under the log is full"
#: A log of at most this many bytes is read whole when it is opened.
SMALL: Final = 64 * MIB
_LOCKED: Final = ("lock hold by current process", "While lock file")
#: Signs of errors of the machine, such as too many open files or a disk fault: those of RocksDB, and those of the
#: operating system while it is opened. They may pass unless damage.
_PASSING: Final = re.compile(r"IO error|.*\(os error \d+\)")


#: RocksDB reads a write-ahead log up to a torn last write (`TOLERANT`), or up to any damage (`PREFIX`).
TOLERANT: Final = DBRecoveryMode.tolerate_corrupted_tail_records()
PREFIX: Final = DBRecoveryMode.point_in_time()


class Stalled(Exception):
    """RocksDB asks writers to wait for its background work."""


def options(recovery: DBRecoveryMode) -> Options:
    """Return the options of the database.

    Values of at least 4 KiB are in blob files, which compaction does not rewrite. Two write buffers are written
    together, so that audio has more time to be trimmed from them.
    """
    opts = Options(raw_mode=True)
    opts.create_if_missing(True)
    opts.set_wal_recovery_mode(recovery)
    opts.set_write_buffer_size(24 * MIB)
    opts.set_max_write_buffer_number(4)
    opts.set_min_write_buffer_number_to_merge(2)
    # Small files and compactions, so that an erasure rewrites little besides removed records.
    opts.set_target_file_size_base(16 * MIB)
    opts.set_max_compaction_bytes(32 * MIB)
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
    """Reads and writes an open database. Any thread.

    Each method raises LogError if the database is damaged, closed or fails for good, and Unavailable while it or its
    disk cannot be used.
    """

    def __init__(self, db: DiskDatabase, path: Path) -> None:
        self._db = db
        self._path = path
        #: Notes where records were deleted.
        self.deletions = db.deletions
        #: Whether parts were not read since the start, and so may be damaged.
        self.is_unread = False
        # A write holds the interpreter lock, so it must wait neither for the disk (`sync` does) nor for RocksDB.
        self._no_wait = WriteOptions()
        self._no_wait.sync = False
        self._no_wait.no_slowdown = True

    @classmethod
    def open(cls, path: Path, group: int = 0, name: bytes | None = None, *, whole: bool = False) -> Store:
        """Open or create the database, and drop a torn last group.

        Before creating, deleting or cutting anything, check that this is the log `name`, complete up to `group`. Read
        the values of a large log only if `whole` is true.

        Raises:
            LogError: the log is damaged, unreadable, incomplete, or written by an unknown version.
        """
        recovery = check(path, group, name, whole=whole)
        is_unread = not whole and _size(path, "*.sst", "*.blob") > SMALL
        try:
            db = DiskDatabase(path, lambda: options(recovery), layout.NOTED_BYTES)
        except Exception as error:
            raise _unreadable(path, error) from error
        store = cls(db, path)
        store.is_unread = is_unread
        try:
            store._check_format(path)
        except BaseException:
            db.close()
            raise
        return store

    def name(self) -> bytes:
        """Return the identity of this log; choose one on the first call."""
        name = self.get(layout.NAME_KEY)
        if name is None:
            self.write_patiently({layout.NAME_KEY: (name := os.urandom(16))})
            self.sync()
        return name

    def topics(self) -> dict[str, tuple[int, int]]:
        """Return id and number of partitions of each topic."""
        rows = self.scan(layout.TOPIC_PREFIX, layout.prefix_end(layout.TOPIC_PREFIX))
        return {key[1:].decode(): layout.unpack_topic(value) for key, value in rows}

    def _check_format(self, path: Path) -> None:
        version = self.get(layout.FORMAT_KEY)
        if version is None:
            self.write_patiently({layout.FORMAT_KEY: layout.FORMAT})
            self.sync()
        elif version != layout.FORMAT:
            raise LogError(
                f"the log in {path} has format {version.decode(errors='replace')}, this version reads format "
                f"{layout.FORMAT.decode()}: use the version that wrote it, or another data directory"
            )

    def write(self, batch: WriteBatch) -> None:
        """Apply a batch atomically. It survives a crash of the process, and power loss after the next `sync`.

        After Unavailable, nothing is written until `revive`.

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
            self.deletions.forget()
            failure = self._fault(error)
            if isinstance(failure, DatabaseFailed):
                # After a disk fault, RocksDB accepts no writes until it is reopened.
                self._db.full = str(failure)
            raise failure from error

    def write_patiently(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Put rows, or delete those without a value, like `write`; wait while RocksDB is behind. Not for the loop."""
        while True:
            batch = WriteBatch(raw_mode=True)  # A new one each time, because RocksDB consumes those it refuses too.
            for key, value in rows.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            try:
                return self.write(batch)
            except Stalled:
                time.sleep(0.005)

    def sync(self) -> None:
        """Wait until all writes are on the disk (fdatasync of the write-ahead log); other threads keep running."""
        self._change(lambda db: db.flush_wal(True))

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.rocks.get(key)
        except Exception as error:
            raise self._fault(error) from error
        return value

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys in [start, stop) with their values, in order."""
        try:
            yield from scan(self._db.rocks, start, stop)
        except Exception as error:
            raise self._fault(error) from error

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the highest key in [start, stop] with its value, None if there is none."""
        try:
            cursor = self._db.rocks.iter()
            cursor.seek_for_prev(stop)
            cursor.status()
            if cursor.valid() and cursor.key() >= start:
                return cursor.key(), cursor.value()
        except Exception as error:
            raise self._fault(error) from error
        return None

    def reclaim(self, start: bytes, stop: bytes) -> None:
        """Free the disk space of deleted keys in [start, stop). Slow, but other threads keep running."""
        self._change(lambda db: db.compact_range(start, stop))

    def noted(self) -> list[bytes]:
        """Return the rows of `deletions`, for `forget`."""
        try:
            return self._db.noted()
        except Exception as error:
            raise self._fault(error) from error

    def rewrite(self, starts: Collection[bytes]) -> bool:
        """Call `erasure.rewrite`; return False if the database closes. Slow, but other threads keep running."""
        try:
            return self._db.rewrite(starts)
        except Exception as error:
            raise self._fault(error) from error

    def forget(self, noted: Iterable[bytes]) -> None:
        """Delete rows of `deletions` whose ranges were rewritten."""
        self._change(lambda _: self._db.forget(noted))

    def beside_deleted(self) -> Iterator[tuple[bytes, int]]:
        """Yield the keys and sizes of large records whose files also hold deleted ones. Slow: it reads the records."""
        for file in blobs.with_garbage(self._path, self._db.rocks):
            with suppress(FileNotFoundError):  # RocksDB deleted it meanwhile.
                for key, size in blobs.keys(file):
                    if self.get(key) is not None:
                        yield key, size

    @property
    def is_stopped(self) -> bool:
        """Whether writes are refused until `revive`, because the disk was full or failed."""
        return self._db.full is not None

    def revive(self) -> bool:
        """Reopen the database after a disk fault if there is room; return whether it accepts writes."""
        try:
            return self._db.revive()
        except Exception as error:
            raise self._fault(error) from error

    def close(self) -> None:
        """Close the database; the write-ahead log keeps all writes even if the last flush fails."""
        try:
            self._db.close()
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> Exception:
        """Translate an error of the database: disk full, stall, damage, or a fault that may pass."""
        text = str(error)
        if isinstance(error, DiskFull):
            return DiskFull(DISK_FULL)
        if text.startswith(("Operation timed out", "Result incomplete")):
            return Stalled(text)
        failure = failure_of(text)
        if isinstance(failure, DatabaseDamaged):
            return LogDamaged(f"the log in {self._path} is damaged ({text}): stop the service; then {REMEDIES}")
        if not _PASSING.match(text):
            return LogError(f"the log's database failed: {text}")
        return DatabaseFailed(f"the log's database fails now: {failure}")


def _unreadable(path: Path, error: Exception) -> LogError:
    if is_full(error):
        return LogError(f"the log in {path} cannot be opened, its disk is full: make room and start again")
    if any(sign in str(error) for sign in _LOCKED):
        return LogLocked(f"the log in {path} is open in another process")
    if "Permission denied" in str(error):
        return LogError(f"the log in {path} cannot be opened ({error}): the user of the service must own its files")
    said = " ".join(str(error).split())  # May have several lines.
    if _PASSING.match(said) and not isinstance(failure_of(said), DatabaseDamaged):
        return LogError(
            f"the log in {path} cannot be read now ({said}): start again; if that does not help, {REMEDIES}"
        )
    return LogDamaged(f"the log in {path} is damaged ({said}): {REMEDIES}")


def check(
    path: Path, group: int = 0, name: bytes | None = None, *, whole: bool = False, shown: Path | None = None
) -> DBRecoveryMode:
    """Check without changing files that a log is complete; return the recovery mode to open it with.

    It must have at least `group` groups, and the name `name` if given. With `whole`, read all of it even if it is
    large. Errors name the path `shown`, if given.

    Raises:
        LogDamaged: something is missing or damaged, or it is another log.
        LogError: the log cannot be read for another reason.
    """
    log = f"the log in {shown or path}"
    if not (path / "CURRENT").exists():
        if any(path.glob(FILLED)):  # RocksDB would delete them.
            raise LogDamaged(f"{log} is damaged, its file CURRENT is missing: {REMEDIES}")
        if group or name:
            raise LogDamaged(f"{log} is missing, although there was one: {REMEDIES}")
        return TOLERANT
    recovery = TOLERANT
    try:
        there = _inspect(path, TOLERANT, whole)
    except Exception as error:
        torn = _last_group_torn(path, whole) if "Corruption" in str(error) else None
        if torn is None:
            raise _unreadable(shown or path, error) from error
        there, recovery = torn, PREFIX
    if there.group < group:
        raise LogDamaged(f"{log} ends at write {there.group}, and there were {group}: {REMEDIES}")
    if name is not None and there.name != name:
        raise LogDamaged(f"{log} is not the one that the database belongs to: {REMEDIES}")
    return recovery


class _There(NamedTuple):
    """The last group's number, and the name of a log."""

    group: int
    name: bytes | None


def _inspect(path: Path, recovery: DBRecoveryMode, whole: bool = False) -> _There:
    """Read a log's last group and name without changing files; read a small log whole, to find damage."""
    db = Rdict(str(path), options(recovery), access_type=AccessType.read_only(False))
    try:
        # On opening, RocksDB checks for its tables, but not for its blob files.
        values, noted = _size(path, "*.blob"), db.property_int_value("rocksdb.total-blob-file-size") or 0
        if values < noted:
            raise ValueError(f"its .blob files have {values} bytes, and had {noted}")
        if missing := gap(path, lambda: options(recovery)):
            raise ValueError(missing)
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
    """Return the facts of a log whose last write was torn by a power cut; None if acknowledged data is damaged.

    A group is written only after the previous one was synced. So if the readable prefix ends at group n and no marker
    beyond n + 1 is on the disk, at most one group is lost, and it was never acknowledged.
    """
    try:
        there = _inspect(path, PREFIX, whole)
        logs = [file.read_bytes() for file in path.glob("*.log")]
    except Exception:
        return None
    if there.name is None:  # It is written before any group.
        return None if any(layout.MAGIC in data for data in logs) else there
    written = max((layout.last_marker(data, there.name) for data in logs), default=0)
    return there if written <= there.group + 1 else None
