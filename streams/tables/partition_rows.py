"""The rows of one partition, kept in its database and logged to the changelog."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import msgspec

from streams.disk import DatabaseDamaged, DatabaseFailed
from streams.folding.head_store import above
from streams.log import LogWriter, StoredRecord
from streams.tables.database import TableDatabase, TableSnapshot
from topics.catalog import CHANGELOG, KEEP_TOMBSTONES_MS
from topics.errors import RecordError
from topics.folding import Folded
from topics.keys import ALARM, AUDIO, EPOCH, HEAD, ID_LENGTH, JOB, NEWEST, POSITIONS, SESSION, is_head

#: A table is too old once it has been behind its changelog for this share of the tombstones' lifetime.
FRESH_SHARE: Final = 0.5
#: Length of what the keys of all rows of a session or job begin with.
PREFIX: Final = 1 + ID_LENGTH
#: Key of `Applied`. Not a row: it is not in the changelog.
APPLIED: Final = b"\x00applied"
#: Numbered notes, which are no rows either: the keys of deleted rows whose deletions may not be in the changelog yet.
UNLOGGED: Final = b"\x00unlogged"
_NUMBER_BYTES: Final = 8
#: Heads logged before other tasks run.
HEADS: Final = 64
NO_ROWS: Final[Mapping[bytes, bytes]] = MappingProxyType({})


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """The database's progress through the changelog."""

    #: All records below this offset are applied.
    offset: int = 0
    #: The highest epoch among them.
    epoch: int = 0
    #: When the table was last known to be up to date (Unix time in ms): it needs all tombstones written later.
    at: int = 0
    #: Keys last written by a fenced-off owner; the next owner must log them again.
    stale: tuple[bytes, ...] = ()
    #: The identity of the changelog's log, b"" if unknown.
    log: bytes = b""
    #: Its owner may have folded commands again that the changelog is past: what they deleted may be here meanwhile.
    folding: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
_applied: Final = msgspec.msgpack.Decoder(Applied)
decode_folded: Final = msgspec.msgpack.Decoder(Folded).decode
_keys: Final = msgspec.msgpack.Decoder(list[bytes])


class TableUnfit(DatabaseDamaged):
    """A table does not match its changelog."""


class TableOutdated(DatabaseFailed):
    """A table may lack deletions that are no longer in its changelog."""


class PartitionRows:
    """Reads and writes the rows of one partition. The owner's methods are loop only; `apply` and reads, any thread.

    The changelog has one writer at a time, the partition's owner. Each takeover begins an epoch, which its records
    carry. A record with a lower epoch than an earlier record comes from a writer that had lost the partition without
    knowing yet. A replay ignores it, because the new owner folds the same commands, and adds its key to `stale`. The
    next owner rewrites that row, so that compaction cannot keep the late one.
    """

    def __init__(self, number: int, database: TableDatabase, writer: LogWriter, now_ms: Callable[[], int]) -> None:
        self.number = number
        self._database = database
        self._writer = writer
        self.now_ms = now_ms
        value = database.get(APPLIED)
        self.applied: Applied = Applied() if value is None else _applied.decode(value)
        self._log = self.applied.log
        numbers = [int.from_bytes(key[-_NUMBER_BYTES:]) for key, _ in self._notes()]
        #: The numbers of the first and the last note of deleted rows.
        self._first_unlogged, self.unlogged = min(numbers, default=1), max(numbers, default=0)
        #: The epoch of this owner, 0 before `begin`.
        self.epoch = 0
        #: Like `Applied.at`, but noted without a new record.
        self._fresh_ms = 0
        #: Rows that were logged first, and not written yet.
        self._coming: dict[bytes, bytes] = {}
        #: Keys of sessions' heads that changed since they were logged last, in order.
        self._heads: dict[bytes, None] = {}
        #: Held during `apply`, `begin`, `close` and `still`.
        self._lock = threading.Lock()

    # --- the database: any thread -----------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        return self._database.get(key)

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        return self._database.scan(lower, upper, limit)

    def skip_scan(self, lower: bytes, upper: bytes, following: Callable[[bytes], bytes]) -> Iterator[bytes]:
        return self._database.skip_scan(lower, upper, following)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Let no thread apply records meanwhile, so that several reads fit together."""
        with self._lock:
            yield

    def revive(self) -> bool:
        return self._database.revive()

    def erase(self) -> None:
        self._database.erase()

    # --- the owner's writes -----------------------------------------------------------------------------------------

    def log_first(self, rows: Mapping[bytes, bytes], logged: Callable[[], None], head: bytes | None = None) -> None:
        """Log rows to the changelog, and call `logged` once it has them; `write` writes them to the table then.

        For these rows the table is never ahead of the changelog. The row of the key `head` is logged before them, if it
        changed since it was.
        """
        self._coming.update(rows)
        if head in self._heads:
            self._log_heads([head])
        self._writer.append_rows(CHANGELOG, self.number, rows, self.epoch, logged)

    def write(self, changes: Mapping[bytes, bytes | None], logged: Mapping[bytes, bytes] = NO_ROWS) -> None:
        """Write all changes (None deletes), then log them to the changelog; after DiskFull, neither was done.

        Heads of sessions change with each command and follow from the commands alone, so `log_heads` logs them. Those
        of jobs must be in the changelog before results are. So must those of deleted sessions before their newest
        windows are gone, because nothing else tells which of them are unbilled. Also write rows that are `logged`
        already.

        If the process dies in between, its next life cannot know which rows it deleted. So they are noted.
        """
        deleted = [key for key, value in changes.items() if value is None and _has_content(key)]
        note = {_note_key(self.unlogged + 1): _encode(deleted)} if deleted else {}
        self._database.write_rows({**logged, **changes, **note})
        for key in (*logged, *changes) if self._coming else ():
            self._coming.pop(key, None)
        self.unlogged += len(note)
        first: dict[bytes, bytes | None] = {}
        now: dict[bytes, bytes | None] = {}
        for key, value in changes.items():
            is_late = value is not None and key[:1] == SESSION and is_head(key)
            if is_late and changes.get(key[:PREFIX] + NEWEST, b"") is not None:
                self._heads[key] = None
            else:
                self._heads.pop(key, None)
                (first if is_late else now)[key] = value
        if first or now:
            self._writer.append_rows(CHANGELOG, self.number, {**first, **now}, self.epoch)

    def log_heads(self) -> Iterator[None]:
        """Log the heads that changed, some at each step: before the positions of the commands that changed them."""
        changed = list(self._heads)
        for first in range(0, len(changed), HEADS):
            self._log_heads([key for key in changed[first : first + HEADS] if key in self._heads])
            yield

    def _log_heads(self, heads: Sequence[bytes]) -> None:
        self.write_again(heads)
        for key in heads:
            del self._heads[key]

    def mark(self, key: bytes) -> None:
        self._database.write_rows({key: b""})

    def write_again(self, keys: Sequence[bytes], logged: Callable[[], None] | None = None) -> None:
        """Log the current rows again, to supersede late records of another writer; then call `logged`."""
        rows = {key: self._coming[key] if key in self._coming else self.get(key) for key in keys}
        self._writer.append_rows(CHANGELOG, self.number, rows, self.epoch, logged)

    def begin(self, epoch: int, offset: int, at_ms: int) -> None:
        """Become the owner's table: the epoch's marker is in the changelog, just before `offset`.

        `at_ms` is the marker's time, not now: the process may have been paused for a day since.

        Raises:
            DiskFull: the disk is full; the table has no owner yet.
        """
        with self._lock:
            # Written before any row of this owner: a table without an age would count as new after a day. Keys stay
            # stale until `note`, because the rewrites may be dropped, and the next owner may get this table.
            self._write_applied({}, Applied(offset, epoch, at_ms, self.applied.stale, folding=True))
            self._database.freeze()
            self.epoch = epoch
            # The changelog, which the table now has, tells what became of them.
            self._coming.clear()
        self.write_stale()

    def thaw(self) -> None:
        """Drop the rows as of `begin`. Idempotent."""
        self._database.thaw()

    def write_stale(self) -> None:
        """Log the current rows of all keys of which the changelog may have another state.

        Heads come before deletions of their rows: a stand-by in between would have a session without its windows.
        """
        unlogged = {key for _, note in self._notes() for key in _keys.decode(note)}
        heads = {key[:PREFIX] + HEAD for key in unlogged if key[:1] in (SESSION, JOB)}
        self.write_again(sorted({*self.applied.stale, *heads, *unlogged}))

    def _notes(self) -> Iterable[tuple[bytes, bytes]]:
        return self.scan(UNLOGGED, above(UNLOGGED))

    def positions(self) -> dict[str, int]:
        """Return for each topic the offset below which all records are folded into rows of the changelog.

        Raises:
            RecordError: the row cannot be read.
        """
        return self.folded().positions

    def folded(self) -> Folded:
        """Return how far the topics are folded into rows of the changelog; raise like `positions`."""
        value = self.get(POSITIONS)
        try:
            return Folded() if value is None else decode_folded(value)
        except msgspec.MsgspecError as error:
            raise RecordError(f"the positions of its topics: {error}") from error

    def note(self, positions: Mapping[str, int], applied: int, at_ms: int, logged: int = 0) -> None:
        """Note in the database the positions in the changelog, and that all its records below `applied` are here.

        `at_ms` is a time by which all that was folded is among them, and `logged` the number of the last note of
        deleted rows whose deletions are.
        """
        now_applied = Applied(applied, max(self.epoch, self.applied.epoch), at_ms)
        done = dict.fromkeys(map(_note_key, range(self._first_unlogged, logged + 1)))
        self._write_applied({**done, POSITIONS: encode_positions(positions, at_ms)}, now_applied)
        self._first_unlogged = max(self._first_unlogged, logged + 1)

    # --- replay -----------------------------------------------------------------------------------------------------

    def check(self, begin: int, end: int, log: bytes = b"") -> None:
        """Check the table against the changelog's bounds, and its log's identity if known.

        Raises:
            TableUnfit: the changelog is another log's, or there is a gap between it and the table.
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
        if at and self.now_ms() - at > FRESH_SHARE * KEEP_TOMBSTONES_MS:
            raise TableOutdated("it is older than the changelog's tombstones")

    def note_fresh(self, now_ms: int) -> None:
        """Note that the table was up to date at this time."""
        self._fresh_ms = max(self._fresh_ms, now_ms)

    def apply(self, records: Sequence[StoredRecord]) -> None:
        """Apply the records of the changelog that the table lacks; do nothing for an owner's table.

        Raises:
            TableOutdated: earlier deletions may be missing.
            DiskFull: the disk is full; nothing was applied.
        """
        with self._lock:
            records = [record for record in records if record.offset >= self.applied.offset]
            if not records or self.epoch:
                return
            self._check_age()
            # Most records are superseded by later ones of the same batch. In the order of the last records.
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
                changes.pop(key, None)
                changes[key] = record.value
            changes.pop(EPOCH, None)
            in_table, in_batch = self._rows_of_deleted(changes)
            changes = {**dict.fromkeys(in_table), **changes, **dict.fromkeys(in_batch)}
            folding = self.applied.folding and POSITIONS not in changes
            at = max(self.applied.at or self.now_ms(), self._fresh_ms, records[-1].timestamp)
            self._write_applied(changes, Applied(records[-1].offset + 1, epoch, at, tuple(stale), folding=folding))

    def _rows_of_deleted(self, changes: dict[bytes, bytes | None]) -> tuple[list[bytes], list[bytes]]:
        """Return the rows of sessions and jobs whose heads are deleted: in the table, and those before in `changes`.

        The owner that deleted a session may not have known them: this table may be of an owner that was killed before
        its last rows reached the changelog, or the deleting owner's table had lost rows that the changelog has.
        """
        deleted: set[bytes] = set()
        in_table: list[bytes] = []
        in_batch: list[bytes] = []
        for key in reversed(changes):
            if changes[key] is None and is_head(key):
                prefix = key[:PREFIX]
                deleted.add(prefix)
                in_table += [row for row, _ in self.scan(prefix, above(prefix))]
            elif key[:PREFIX] in deleted:
                in_batch.append(key)
        return in_table, in_batch

    def begin_erasure(self) -> None:
        """Begin a round: `erase` erases what was deleted before. Loop only."""
        with self._lock:
            self._database.deletions.begin()

    def _write_applied(self, changes: Mapping[bytes, bytes | None], applied: Applied) -> None:
        applied = msgspec.structs.replace(applied, log=self._log)
        self._database.write_rows({**changes, APPLIED: _encode(applied)})
        self.applied = applied

    @property
    def before(self) -> TableSnapshot | None:
        """The rows as of `begin`, for readers while the owner folds commands again, until `thaw`."""
        return self._database.before

    @property
    def has_deletions(self) -> bool:
        """Whether rows of a session or job were deleted since the last note."""
        return self.unlogged >= self._first_unlogged

    @property
    def disk_full(self) -> str | None:
        return self._database.full

    @property
    def damage(self) -> DatabaseDamaged | None:
        return self._database.damage

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _note_key(number: int) -> bytes:
    return UNLOGGED + number.to_bytes(_NUMBER_BYTES)


def _has_content(key: bytes) -> bool:
    """Return whether a row has something of a session or job, other than references to its audio."""
    return len(key) > PREFIX and (key[:1] == ALARM or (key[:1] in (SESSION, JOB) and key[PREFIX : PREFIX + 1] != AUDIO))


def encode_positions(positions: Mapping[str, int], at_ms: int = 0) -> bytes:
    return _encode(Folded(dict(positions), at_ms))
