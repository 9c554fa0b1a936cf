"""The rows of one partition: read and written in its database, and logged to the changelog."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from streams.disk import DatabaseDamaged, DatabaseFailed
from streams.folding.head_store import above
from streams.log import LogWriter, StoredRecord
from streams.tables.database import TableDatabase
from topics.catalog import CHANGELOG, KEEP_TOMBSTONES_MS
from topics.keys import EPOCH, POSITIONS, is_head

#: A table that was not at the end of its changelog for this share of the time that tombstones stay is too old.
FRESH_SHARE: Final = 0.5
#: Where the database notes how far it holds the changelog. Not a row: the changelog does not know it.
APPLIED: Final = b"\x00applied"


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """How far a database holds the changelog."""

    #: All records below are in it.
    offset: int = 0
    #: The epoch of the newest owner that wrote one of them.
    epoch: int = 0
    #: When the table was last known to be at the end of the changelog (ms since the epoch of Unix): it needs all
    #: tombstones that were written later.
    at: int = 0
    #: Keys last written by a fenced-off owner; the next owner must log them again.
    stale: tuple[bytes, ...] = ()
    #: The name of the log of the changelog, b"" where none is known.
    log: bytes = b""


_encode: Final = msgspec.msgpack.Encoder().encode
_applied: Final = msgspec.msgpack.Decoder(Applied)
_positions: Final = msgspec.msgpack.Decoder(dict[str, int])


class TableUnfit(DatabaseDamaged):
    """A table does not belong to its changelog."""


class TableOutdated(DatabaseFailed):
    """A table may have missed deletions that its changelog no longer has."""


class PartitionRows:
    """The rows of one partition. The owner's methods are for the loop, `apply` and the reads for any thread.

    The changelog has one writer at a time, the partition's owner, and each takeover has an epoch that all its records
    carry. If a record has a lower epoch than one before it, its writer had lost the partition and did not know that
    yet. A replay ignores such a record, because the new owner folds the same commands, and remembers its key in
    `stale`. The next owner writes that row again, so that no compaction can keep the late one.
    """

    def __init__(self, number: int, database: TableDatabase, writer: LogWriter, now_ms: Callable[[], int]) -> None:
        self.number = number
        #: The reads of the database; each from any thread.
        self.get, self.scan, self.skip_scan = database.get, database.scan, database.skip_scan
        self.revive = database.revive
        self._database = database
        self._writer = writer
        self._now_ms = now_ms
        value = database.get(APPLIED)
        self.applied: Applied = Applied() if value is None else _applied.decode(value)
        self._log = self.applied.log
        #: The epoch of this owner, once it has one.
        self.epoch = 0
        #: Like `Applied.at`, if no record has come since.
        self._fresh_ms = 0
        #: Held while records are applied, or an owner begins.
        self._lock = threading.Lock()

    # --- the owner's writes -----------------------------------------------------------------------------------------

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Write all changes (None deletes), then log them to the changelog; DiskFull means that neither was done."""
        self._database.write_rows(changes)
        self._writer.append_rows(CHANGELOG, self.number, changes, self.epoch)

    def mark(self, key: bytes) -> None:
        self._database.write_rows({key: b""})

    def write_again(self, keys: Sequence[bytes]) -> None:
        """Log rows as they are here, over records that somebody else has put after them."""
        self._writer.append_rows(CHANGELOG, self.number, {key: self.get(key) for key in keys}, self.epoch)

    def begin(self, epoch: int, offset: int, at_ms: int) -> None:
        """Be the owner's table from now on: its epoch is on the changelog, the record before `offset`.

        `at_ms` is that record's time. The clock may have gone on since: the process may have stood still for a day.

        Raises:
            DiskFull: the disk is full; it is nobody's table yet.
        """
        with self._lock:
            # Written before any row of this owner: rows without an age would count as new after a day. Keys stay stale
            # until `note`: what is logged again may be dropped on its way, and this table may serve the next owner.
            self._write_applied({}, Applied(offset, epoch, at_ms, self.applied.stale))
            self.epoch = epoch
        self.write_again(sorted(self.applied.stale))

    def positions(self) -> dict[str, int]:
        """Return of each topic the offset below which all is folded into the rows that the changelog has."""
        value = self.get(POSITIONS)
        return {} if value is None else _positions.decode(value)

    def note(self, positions: Mapping[str, int], applied: int, at_ms: int) -> None:
        """Note in the database what the changelog has taken: positions, and all its records below `applied`.

        `at_ms` is the time of the last of them, as in `begin`.
        """
        now_applied = Applied(applied, max(self.epoch, self.applied.epoch), at_ms)
        self._write_applied({POSITIONS: encode_positions(positions)}, now_applied)

    # --- replay -----------------------------------------------------------------------------------------------------

    def check(self, begin: int, end: int, log: bytes = b"") -> None:
        """Check the bounds of the changelog, and the name of its log if it has one.

        Raises:
            TableUnfit: they are those of another log, or there is a gap between the table and them.
            TableOutdated: the table lacks records, and may lack deletions.
        """
        offset = self.applied.offset
        if self.applied.log not in (b"", log):
            raise TableUnfit("it is of another log")
        self._log = log
        if offset > end:
            raise TableUnfit(f"its changelog ends at {end}, and it holds what was at {offset}: it is of another log")
        if offset and offset < begin:
            raise TableUnfit(f"its changelog begins at {begin}, and it holds what was below {offset}")
        if offset < end:
            self._check_age()

    def _check_age(self) -> None:
        at = max(self.applied.at, self._fresh_ms)
        if at and self._now_ms() - at > FRESH_SHARE * KEEP_TOMBSTONES_MS:
            raise TableOutdated("it is older than the changelog's tombstones")

    def note_fresh(self, now_ms: int) -> None:
        """Note that the table had all of the changelog at this time."""
        self._fresh_ms = max(self._fresh_ms, now_ms)

    def apply(self, records: Sequence[StoredRecord]) -> None:
        """Apply those records of a stretch of the changelog that the table does not have; an owner's table has all.

        Raises:
            TableOutdated: deletions before them may be missing.
            DiskFull: the disk is full; nothing was applied.
        """
        with self._lock:
            records = [record for record in records if record.offset >= self.applied.offset]
            if not records or self.epoch:
                return
            self._check_age()
            # Most records are earlier forms of a row that is here again.
            changes: dict[bytes, bytes | None] = {}
            epoch, stale = self.applied.epoch, set(self.applied.stale)
            for record in records:
                key = record.key
                if key is None:
                    continue
                if record.epoch < epoch:
                    stale.add(key)
                    continue
                epoch = record.epoch
                stale.discard(key)
                changes[key] = record.value
            changes.pop(EPOCH, None)
            changes = {**dict.fromkeys(self._rows_of_deleted(changes)), **changes}
            at = max(self.applied.at or self._now_ms(), self._fresh_ms, records[-1].timestamp)
            self._write_applied(changes, Applied(records[-1].offset + 1, epoch, at, tuple(stale)))

    def _rows_of_deleted(self, changes: Mapping[bytes, bytes | None]) -> Iterator[bytes]:
        """Yield the rows of sessions and jobs whose heads are deleted.

        This table may belong to an owner that was killed before its last rows reached the changelog. The owner that
        deleted the session knew nothing of those rows.
        """
        for key, value in changes.items():
            if value is None and is_head(key):
                prefix = key[:-1]
                yield from (row for row, _ in self.scan(prefix, above(prefix)))

    def _write_applied(self, changes: Mapping[bytes, bytes | None], applied: Applied) -> None:
        applied = msgspec.structs.replace(applied, log=self._log)
        self._database.write_rows({**changes, APPLIED: _encode(applied)})
        self.applied = applied

    @property
    def disk_full(self) -> str | None:
        return self._database.full

    @property
    def damage(self) -> DatabaseDamaged | None:
        return self._database.damage

    def close(self) -> None:
        with self._lock:
            self._database.close()


def encode_positions(positions: Mapping[str, int]) -> bytes:
    return _encode(dict(positions))
