"""The RocksDB databases of a node, one for each partition, with memory bounds for many in one process."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Final

import rocksdict

from streams.disk import (
    FILLED,
    DatabaseDamaged,
    DatabaseFailed,
    DiskDatabase,
    DiskFull,
    failure_of,
    is_full,
    iterate,
    scan,
)
from streams.sequence import gap
from topics import keys
from topics.errors import Unavailable

WRITE_BUFFER: Final = 8 * 1024 * 1024
BLOCK_CACHE: Final = 32 * 1024 * 1024
OPEN_FILES: Final = 64
#: How much of a deleted key is noted until it is erased: the kind of the row and five letters of an id.
NOTED_BYTES: Final = 6
#: What rocksdict says of a key that a snapshot does not have.
MISSING: Final = "key not found"
DISK_FULL: Final = "the disk under the tables is full"


class TableDatabase(DiskDatabase):
    """Reads and writes the rows of one table. Any thread.

    Each method raises DatabaseFailed if RocksDB fails, and DatabaseDamaged if its files are damaged.
    """

    #: The rows kept by `freeze`.
    before: "TableSnapshot | None" = None

    def __init__(self, path: Path, options: Callable[[], rocksdict.Options]) -> None:
        self.damage: DatabaseDamaged | None = None
        with self._failing():
            if path.exists() and not path.is_dir():
                raise DatabaseDamaged(f"{path.name} is not a directory")
            if any(path.glob(FILLED)) and not (path / "CURRENT").exists():
                raise DatabaseDamaged(f"{path.name}/CURRENT is missing")  # RocksDB would delete the other files.
            try:
                if missing := gap(path, options):
                    raise DatabaseDamaged(f"{path.name}: {missing}")
                super().__init__(path, options, NOTED_BYTES)
            except Exception as error:
                if is_full(error):
                    raise DiskFull(DISK_FULL) from error
                raise

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:  # rocksdict's errors have no common base.
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> DatabaseFailed:
        """Return RocksDB's error as one of ours, and note damage."""
        failure = failure_of(error)
        if isinstance(failure, DatabaseDamaged):
            self.damage = failure = self.damage or failure
        return failure

    def get(self, key: bytes) -> bytes | None:
        try:  # Not `_failing`, which costs as much as the read.
            value: bytes | None = self.rocks.get(key)
        except Exception as error:
            raise self._failure(error) from error
        return value

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        with self._failing():
            yield from islice(scan(self.rocks, lower, upper), limit)

    def skip_scan(self, lower: bytes, upper: bytes, following: Callable[[bytes], bytes]) -> Iterator[bytes]:
        with self._failing():
            cursor = iterate(self.rocks, lower, upper)
            try:
                while cursor.valid():
                    yield (key := cursor.key())
                    cursor.seek(following(key))
                cursor.status()
            finally:
                del cursor  # As in `streams.disk.scan`.

    def write_rows(self, changes: Mapping[bytes, bytes | None]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        for key, value in self.deletions.note(key for key, value in changes.items() if value is None).items():
            batch.put(key, value)
        try:  # As in `get`.
            self.write(lambda rocks: rocks.write(batch))
        except Exception as error:
            self.deletions.forget()
            if isinstance(error, Unavailable):
                raise
            raise self._failure(error) from error

    def freeze(self) -> None:
        """Keep the rows as they are in `before`, until `thaw`."""
        self.before = TableSnapshot(self)

    def thaw(self) -> None:
        """Drop the rows kept by `freeze`. Idempotent."""
        if self.before is not None:
            self.before.close()
            self.before = None

    def revive(self) -> bool:
        if self.full is not None:
            self.thaw()  # It would keep the database open.
        return super().revive()

    def erase(self) -> None:
        """Rewrite the files that hold rows deleted before `deletions.begin`. For a worker thread; `close` stops it."""
        with self._failing():
            if self.rewrite(self.deletions.starts(noted := self.noted())):
                self.forget(noted)

    def close(self) -> None:
        self.thaw()
        with self._failing():
            super().close()


class TableSnapshot:
    """Reads the rows of a table as they were. Any thread. Until `close` the database stays open, and erases nothing."""

    def __init__(self, database: TableDatabase) -> None:
        self._database = database
        with database._failing():
            self._rocks = database.rocks.snapshot()

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes = self._rocks[key]
        except Exception as error:
            if str(error) == MISSING:
                return None
            raise self._database._failure(error) from error
        return value

    def scan(self, lower: bytes, upper: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows whose keys differ in their numbers alone. A cursor of rocksdict would see later writes."""
        for number in range(keys.number_of(lower), keys.number_of(upper)):
            if (value := self.get(key := keys.numbered(lower, number))) is not None:
                yield key, value

    def close(self) -> None:
        """Release the database; whoever still reads gets DatabaseFailed."""
        del self._rocks


class Databases:
    """Manages the directory of a node's tables. Any thread; one at a time for each partition."""

    def __init__(self, directory: Path, left_out: bool = False) -> None:
        #: Whether tables may be missing on purpose.
        self.left_out = left_out
        self._directory = directory / "partitions"
        # One shared cache, so that memory does not grow with the number of partitions.
        self._cache = rocksdict.Cache(BLOCK_CACHE)

    def open(self, partition: int) -> TableDatabase:
        """Open or create the database of a partition; raise DiskFull, DatabaseFailed or DatabaseDamaged."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return TableDatabase(self.path(partition), self._options)

    def wipe(self, partition: int) -> None:
        shutil.rmtree(self.path(partition), ignore_errors=True)

    def unused(self, seconds: float) -> list[int]:
        """Return the partitions with databases that nobody has written for some seconds, as an open one may be too."""
        since = time.time() - seconds
        return [int(path.stem) for path in self._directory.glob("*.db") if _last_write(path) < since]

    def set_aside(self, partition: int) -> Path | None:
        """Rename the closed database of a partition; return its new path, or None if somebody removed it."""
        path = self.path(partition)
        if not path.exists():
            return None
        aside = next(new for number in count(1) if not (new := path.with_suffix(f".damaged-{number}")).exists())
        return path.rename(aside)

    def aside(self) -> list[Path]:
        """Return the directories of tables set aside by this process or earlier ones."""
        return sorted(self._directory.glob("*.damaged-*"))

    def _options(self) -> rocksdict.Options:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(WRITE_BUFFER)
        options.set_max_write_buffer_number(2)
        # Small files and compactions, so that an erasure rewrites little besides deleted rows.
        options.set_max_bytes_for_level_base(8 * WRITE_BUFFER)
        options.set_target_file_size_base(2 * WRITE_BUFFER)
        options.set_max_compaction_bytes(4 * WRITE_BUFFER)
        options.set_max_open_files(OPEN_FILES)
        options.set_keep_log_file_num(2)
        options.set_max_total_wal_size(4 * WRITE_BUFFER)
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        return options

    def path(self, partition: int) -> Path:
        """Return the directory of a partition's table, whether there is one or not."""
        return self._directory / f"{partition}.db"


def _last_write(path: Path) -> float:
    return max((file.stat().st_mtime for file in (path, *path.glob("*")) if file.exists()), default=0.0)
