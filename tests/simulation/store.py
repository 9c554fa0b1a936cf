"""A node's tables on a simulated disk: in memory, with crash remains and errors by the seed."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from streams.tables.database import TableDatabase
from tests.simulation.threads import Threads

Batch = dict[bytes, bytes | None]

#: Probability that another thread overtakes a writing one, at each of two places.
OVERTAKEN_SHARE: Final = 0.3
EIO: Final = "IO error: While pread offset 4096 len 4096: 000012.sst: Input/output error"
CORRUPTION: Final = "Corruption: block checksum mismatch in 000012.sst"
EMFILE: Final = "IO error: While open a file for random read: 000012.sst: Too many open files"


class Table:
    """Content of a directory."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        #: All writes, oldest first: a crash of the machine leaves some of them.
        self.batches: list[Batch] = []

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)
        rows, keys = self.rows, self.keys
        for key, value in batch.items():
            if value is not None:
                if key not in rows:
                    insort(keys, key)
                rows[key] = value
            elif key in rows:
                del rows[key]
                del keys[bisect_left(keys, key)]

    def after(self, count: int) -> Table:
        older = Table()
        for batch in self.batches[:count]:
            older.write(batch)
        return older


class Database(TableDatabase):
    """A `TableDatabase` on a simulated disk."""

    def __init__(self, disk: Disk, table: Table) -> None:
        self.damage = None
        self.full = None
        self._disk = disk
        self._table: Table | None = table
        with self._failing():
            disk.fault()

    def _there(self) -> Table:
        if self._table is None or self._disk.failing:
            with self._failing():
                if self._table is None:
                    raise RocksError("DB instance already closed")
                self._disk.fault()
        assert self._table is not None
        return self._table

    def get(self, key: bytes) -> bytes | None:
        return self._there().rows.get(key)

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        table = self._there()
        first, stop = bisect_left(table.keys, lower), bisect_left(table.keys, upper)
        if limit is not None:
            stop = min(stop, first + limit)
        keys = table.keys[first:stop]
        yield from [(key, table.rows[key]) for key in keys]

    def skip_scan(self, lower: bytes, upper: bytes, following: Callable[[bytes], bytes]) -> Iterator[bytes]:
        keys = list(self._there().keys)
        stop = bisect_left(keys, upper)
        at = bisect_left(keys, lower)
        while at < stop:
            yield keys[at]
            at = bisect_left(keys, following(keys[at]))

    def write_rows(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Write all changes at once; None deletes. Other threads may run before and after."""
        self._disk.threads.step(OVERTAKEN_SHARE)
        self._there().write(dict(changes))
        self._disk.threads.step(OVERTAKEN_SHARE)

    def freeze(self) -> None:
        copy, table = Table(), self._there()
        copy.rows, copy.keys = dict(table.rows), list(table.keys)
        self.before = Database(self._disk, copy)  # type: ignore[assignment]

    def revive(self) -> bool:
        return True

    def close(self) -> None:
        self._table = None


class RocksError(Exception):
    """rocksdict's exception."""


class Disk:
    """A node's disk, which outlives its processes."""

    def __init__(self, threads: Threads, chance: random.Random) -> None:
        self.threads = threads
        self.tables: dict[int, Table] = {}
        self._chance = chance
        #: Error of reads and writes, raised with this probability; None for no error.
        self._error: str | None = None
        self._share = 0.0
        self.errors = 0

    def break_down(self, error: str | None, share: float = 1.0) -> None:
        self._error, self._share = error, share

    @property
    def failing(self) -> bool:
        return self._error is not None

    def fault(self) -> None:
        if self._error is not None and self._chance.random() < self._share:
            self.errors += 1
            raise RocksError(self._error)

    def crash(self, lost: Callable[[int], int]) -> None:
        """Lose the last `lost(batches)` batches of each table."""
        for number, table in self.tables.items():
            self.tables[number] = table.after(len(table.batches) - lost(len(table.batches)))

    # --- Databases --------------------------------------------------------------------------------------------------

    def open(self, partition: int) -> Database:
        return Database(self, self.tables.setdefault(partition, Table()))

    def wipe(self, partition: int) -> None:
        self.tables.pop(partition, None)

    def set_aside(self, partition: int) -> Path:
        """Move a partition's table away."""
        self.tables.pop(partition, None)
        return Path(f"{partition}.damaged")
