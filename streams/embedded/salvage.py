"""Reads the intact records of a damaged log, and writes a new log from them.

The old log is not changed: it is read through hard links, which RocksDB may repair. Records keep their offsets,
because rows refer to them; the offsets of lost records are never reused.
"""

import os
import shutil
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import AccessType, Rdict

from streams.disk import scan
from streams.embedded import layout
from streams.embedded.log_store import MIB, PREFIX, Store, options
from streams.log import StoredRecord
from streams.sequence import is_complete
from topics.catalog import TopicPartition

#: Offsets to skip, more than were ever assigned and lost.
SKIPPED: Final = 1 << 20
#: Offsets to try in an unreadable block of a table, whose keys may be far apart.
TRIES: Final = 1_000_000
#: Offsets in a row that may be missing.
LONGEST: Final = 1 << 40
BATCH_BYTES: Final = 4 * MIB
_IMMUTABLE: Final = (".sst", ".blob")


class Kept(NamedTuple):
    """What was kept of a partition: the number of records, and the lost offsets, except those of an earlier salvage."""

    records: int
    first: int
    end: int
    gaps: Sequence[range]


class _Part:
    """The readable records of one open database. One thread at a time."""

    def __init__(self, db: Rdict) -> None:
        self.db = db
        #: Id and number of partitions, by topic.
        self.topics: dict[str, tuple[int, int]] = {}
        with suppress(Exception):  # rocksdict's errors have no common base.
            for key, value in scan(db, layout.TOPIC_PREFIX, layout.prefix_end(layout.TOPIC_PREFIX)):
                self.topics[key[1:].decode()] = layout.unpack_topic(value)

    def get(self, key: bytes) -> bytes | None:
        with suppress(Exception):
            value: bytes | None = self.db.get(key)
            return value
        return None

    def records(self, topic_id: int, partition: int, at: int, unreadable: set[int]) -> Iterator[StoredRecord]:
        """Yield the readable records of a partition from `at` on; add the offsets of others to `unreadable`."""
        tries = 0
        while tries < TRIES:
            try:
                for record in self._scan(topic_id, partition, at, layout.MAX_OFFSET):
                    at, tries = record.offset + 1, 0
                    yield record
            except Exception:
                broken = self._first_unreadable(topic_id, partition, at)
                unreadable.add(broken)
                at, tries = broken + 1, tries + 1
            else:
                return

    def _scan(self, topic_id: int, partition: int, start: int, stop: int) -> Iterator[StoredRecord]:
        bounds = (layout.record_key(topic_id, partition, offset) for offset in (start, stop))
        for key, data in scan(self.db, *bounds):
            yield layout.unpack_record(layout.record_offset(key), data)

    def _first_unreadable(self, topic_id: int, partition: int, start: int) -> int:
        """Return the lowest offset from `start` on with which a scan from `start` fails."""

        def fails(length: int) -> bool:
            try:
                next(self._scan(topic_id, partition, start, start + length), None)
            except Exception:
                return True
            return False

        longest = 1
        while not fails(longest):
            longest *= 2
            if longest > LONGEST:
                return start  # The fault has passed.
        return start + bisect_left(range(longest), True, lo=longest // 2, key=lambda most: fails(most + 1))


class Remains:
    """Reads the intact records of a log from its databases, the best one first. One thread at a time."""

    def __init__(self, dbs: Sequence[Rdict], *, is_complete: bool) -> None:
        self._parts = [_Part(db) for db in dbs]
        self._is_complete = is_complete
        #: Id and number of partitions, by topic.
        self.topics = {name: topic for part in self._parts for name, topic in part.topics.items()}
        self.name = next(iter(self._values(layout.NAME_KEY)), None)
        self.group = max(map(layout.unpack_marker, self._values(layout.MARKER_KEY)), default=0)

    def _values(self, key: bytes) -> list[bytes]:
        return [value for part in self._parts if (value := part.get(key)) is not None]

    def earliest(self, tp: TopicPartition) -> int:
        """Return the lowest offset that may be readable."""
        topic = self.topics.get(tp.topic)
        marks = [] if topic is None else self._values(layout.earliest_key(topic[0], tp.partition))
        return max((layout.unpack_pair(mark)[0] for mark in marks), default=0)

    def sparse_to(self, tp: TopicPartition) -> int:
        """Return the offset below which missing records were removed, or lost before an earlier salvage."""
        topic = self.topics.get(tp.topic)
        if topic is None or not self._is_complete:  # What is missing may have had such records.
            return 0
        mark = self._parts[0].get(layout.clean_key(topic[0], tp.partition))
        return 0 if mark is None else layout.unpack_pair(mark)[0]

    def records(self, tp: TopicPartition, unreadable: set[int] | None = None) -> Iterator[StoredRecord]:
        """Yield the readable records of a partition, in order; add the offsets of others to `unreadable`."""
        topic = self.topics.get(tp.topic)
        if topic is None or tp.partition >= topic[1]:
            return
        at, broken = self.earliest(tp), set() if unreadable is None else unreadable
        for record in merge(*(part.records(topic[0], tp.partition, at, broken) for part in self._parts), key=_offset):
            if record.offset >= at:
                at = record.offset + 1
                yield record


def _offset(record: StoredRecord) -> int:
    return record.offset


@contextmanager
def remains(log: Path, scratch: Path) -> Iterator[Remains]:
    """Yield a reader of a log that no process has open; `scratch` is a new path on its file system."""
    dbs: list[Rdict] = []
    try:
        is_complete = log.is_dir() and _open(log, scratch, dbs)
        yield Remains(dbs, is_complete=is_complete)
    finally:
        for db in dbs:
            db.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _open(log: Path, scratch: Path, dbs: list[Rdict]) -> bool:
    """Open the database as its best list of files describes it, and a repaired one if that lacks changes.

    Add them to `dbs`, and return whether the first is complete up to a point in time: it lacks values at most.
    """
    for number, manifest in enumerate(_manifests(log)):
        copy = linked_copy(log, scratch / f"listed-{number}")
        (copy / "CURRENT").write_text(f"{manifest}\n")
        with suppress(Exception):  # rocksdict's errors have no common base.
            dbs.append(Rdict(str(copy), options(PREFIX), access_type=AccessType.read_only(False)))
            if is_complete(copy, dbs[-1], lambda: options(PREFIX)):
                return True
            break
    copy = linked_copy(log, scratch / "repaired")
    with suppress(Exception):
        # A repair finds tables and write-ahead logs without their list, but loses the values in blob files.
        Rdict.repair(str(copy), options(PREFIX))
        dbs.append(Rdict(str(copy), options(PREFIX), access_type=AccessType.read_only(False)))
    return False


def _manifests(log: Path) -> list[str]:
    """Return the names of the lists of files, the current one first, then from the newest on."""
    names = sorted((file.name for file in log.glob("MANIFEST-*") if file.stat().st_size), reverse=True)
    with suppress(OSError):
        current = (log / "CURRENT").read_text(errors="replace").strip()
        names.sort(key=lambda name: name != current)
    return names


def linked_copy(database: Path, copy: Path) -> Path:
    """Return a copy of a closed database that RocksDB may change; what it never changes are hard links."""
    copy.mkdir(mode=0o700, parents=True)
    for file in database.iterdir():
        if file.suffix in _IMMUTABLE:
            os.link(file, copy / file.name)
        elif file.is_file() and not file.name.startswith(("LOG", "LOCK")):
            shutil.copyfile(file, copy / file.name)
    return copy


class NewLog:
    """Writes a new log from the remains of another. One thread at a time."""

    def __init__(self, path: Path, name: bytes | None, group: int) -> None:
        path.mkdir(mode=0o700)
        self._store = Store.open(path)
        self._rows: dict[bytes, bytes] = {}
        self._bytes = 0
        self._topics: dict[str, int] = {}
        self._put(layout.MARKER_KEY, layout.pack_marker(group, name or b""))
        if name is not None:
            self._put(layout.NAME_KEY, name)

    def topic(self, name: str, partitions: int) -> None:
        self._topics[name] = len(self._topics) + 1
        self._put(layout.topic_key(name), layout.pack_topic(self._topics[name], partitions))

    def append(self, tp: TopicPartition, record: StoredRecord) -> None:
        key = layout.record_key(self._topics[tp.topic], tp.partition, record.offset)
        self._put(key, layout.pack_record(record.timestamp, record.key, record.value))

    def copy(self, tp: TopicPartition, old: Store, topic_id: int) -> None:
        """Copy a whole partition, whose topic has this id in the old log, and what the old log notes about it."""
        copied, number = self._topics[tp.topic], tp.partition
        for of in (layout.earliest_key, layout.clean_key, layout.next_key):
            if (value := old.get(of(topic_id, number))) is not None:
                self._put(of(copied, number), value)
        bounds = (layout.record_key(topic_id, number, offset) for offset in (0, layout.MAX_OFFSET))
        for key, value in old.scan(*bounds):
            self._put(layout.record_key(copied, number, layout.record_offset(key)), value)

    def keep(self, tp: TopicPartition, old: Remains, end: int) -> Kept:
        """Write the readable records of a partition, and skip the offsets of the others.

        `end` is the offset after the last known record.
        """
        at = first = old.earliest(tp)
        sparse_to, unreadable = old.sparse_to(tp), set[int]()
        count, timestamp, gaps = 0, 0, list[range]()

        def lose(start: int, stop: int) -> None:
            gaps.extend(range(offset, offset + 1) for offset in sorted(unreadable) if start <= offset < sparse_to)
            unreadable.clear()
            if max(start, sparse_to) < stop:
                gaps.append(range(max(start, sparse_to), stop))

        for record in old.records(tp, unreadable):
            lose(at, record.offset)
            self.append(tp, record)
            at, timestamp, count = record.offset + 1, record.timestamp, count + 1
        lose(at, end)
        topic_id = self._topics[tp.topic]
        self._put(layout.earliest_key(topic_id, tp.partition), layout.pack_pair(first, timestamp))
        goes_on = max(at, end) + SKIPPED
        self._put(layout.next_key(topic_id, tp.partition), layout.pack_offset(goes_on))
        # The missing offsets are not damage from now on.
        self._put(layout.clean_key(topic_id, tp.partition), layout.pack_pair(goes_on, 0))
        return Kept(count, first, at, gaps)

    def _put(self, key: bytes, value: bytes) -> None:
        self._rows[key] = value
        self._bytes += len(key) + len(value)
        if self._bytes > BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._store.write_patiently(self._rows)
        self._rows, self._bytes = {}, 0

    def close(self) -> None:
        """Wait until the log is on the disk; raise ServiceError if it cannot be written."""
        try:
            self._flush()
            self._store.sync()
        finally:
            self._store.close()
