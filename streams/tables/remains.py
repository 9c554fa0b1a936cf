"""Reads a table whose log has lost data."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import rocksdict

from streams.disk import scan
from streams.sequence import gap
from streams.tables.partition_rows import APPLIED, FRESH_SHARE, Applied
from topics.catalog import KEEP_TOMBSTONES_MS
from topics.keys import INDEXED

_applied = msgspec.msgpack.Decoder(Applied)
#: Prefixes of keys that another table may lack.
_OWN = (APPLIED, INDEXED)


class Remains:
    """Reads a table without changing it. One thread at a time."""

    def __init__(self, db: rocksdict.Rdict) -> None:
        self._db = db
        value = db.get(APPLIED)
        #: Nothing is noted in the first seconds of a table.
        self.applied = Applied() if value is None else _applied.decode(value)
        for _ in self.rows():
            pass  # Check that all rows are readable.

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys and values that came from, or went to, the changelog."""
        return ((key, value) for key, value in scan(self._db) if not key.startswith(_OWN))

    def is_of(self, log: bytes | None) -> bool:
        """Return whether the table may belong to `log`, because it is not known to belong to another."""
        return log is None or self.applied.log in (b"", log)

    def completes(self, end: int, last_ms: int) -> bool:
        """Return whether the table and the later records of a changelog together give all rows.

        The changelog ends before the offset `end`, with a record of the time `last_ms` (Unix time in ms).
        """
        is_fresh = not self.applied.at or last_ms - self.applied.at <= FRESH_SHARE * KEEP_TOMBSTONES_MS
        return is_fresh or self.applied.offset >= end


@contextmanager
def remains(directory: Path, partition: int) -> Iterator[Remains | None]:
    """Yield the table of a partition, or None if it is missing, damaged or empty; do not change its files."""
    path, db, found = directory / "partitions" / f"{partition}.db", None, None
    if (path / "CURRENT").exists():
        options = rocksdict.Options(raw_mode=True)
        try:
            db = rocksdict.Rdict(str(path), options, access_type=rocksdict.AccessType.read_only(False))
            found = None if gap(path, lambda: rocksdict.Options(raw_mode=True)) else Remains(db)
        except Exception:  # rocksdict's errors have no common base.
            found = None
    try:
        yield found
    finally:
        if db is not None:
            db.close()
