"""Reads the intact records of a damaged log, and writes a new log from them.

The old log is not changed: it is read through hard links, which RocksDB may repair. Records keep their offsets,
because rows refer to them; the offsets of lost records are never reused.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import AccessType, Rdict, WriteBatch

from streams.disk import scan
from streams.embedded import layout
from streams.embedded.log_store import MIB, PREFIX, Store, options
from streams.log import StoredRecord
from topics.catalog import TopicPartition

#: Offsets to skip, more than were ever assigned and lost.
SKIPPED: Final = 1 << 20
#: Keys to try after one with an unreadable value.
TRIES: Final = 100_000
BATCH_BYTES: Final = 4 * MIB
_IMMUTABLE: Final = (".sst", ".blob")


class Kept(NamedTuple):
    """What was kept of a partition: the number of records, and the missing offsets."""

    records: int
    first: int
    end: int
    gaps: Sequence[range]


class Remains:
    """Reads the intact records of a log. One thread at a time."""

    def __init__(self, db: Rdict | None) -> None:
        self._db = db
        #: Id and number of partitions, by topic.
        self.topics: dict[str, tuple[int, int]] = {}
        self.name = self._get(layout.NAME_KEY)
        marker = self._get(layout.MARKER_KEY)
        self.group = 0 if marker is None else layout.unpack_marker(marker)
        if db is not None:
            for key, value in scan(db, layout.TOPIC_PREFIX, layout.prefix_end(layout.TOPIC_PREFIX)):
                self.topics[key[1:].decode()] = layout.unpack_topic(value)

    def _get(self, key: bytes) -> bytes | None:
        with suppress(Exception):  # rocksdict's errors have no common base.
            return None if self._db is None else self._db.get(key)
        return None

    def earliest(self, tp: TopicPartition) -> int:
        """Return the lowest offset that may be readable."""
        topic = self.topics.get(tp.topic)
        mark = None if topic is None else self._get(layout.earliest_key(topic[0], tp.partition))
        return 0 if mark is None else layout.unpack_pair(mark)[0]

    def records(self, tp: TopicPartition) -> Iterator[StoredRecord]:
        """Yield the readable records of a partition, in order."""
        topic = self.topics.get(tp.topic)
        if self._db is None or topic is None or tp.partition >= topic[1]:
            return
        at, stop = self.earliest(tp), layout.record_key(topic[0], tp.partition, layout.MAX_OFFSET)
        tries = 0
        while tries < TRIES:
            try:
                for key, data in scan(self._db, layout.record_key(topic[0], tp.partition, at), stop):
                    record = layout.unpack_record(layout.record_offset(key), data)
                    at, tries = record.offset + 1, 0
                    yield record
            except Exception:  # The value at `at` or a later one is unreadable.
                at, tries = at + 1, tries + 1
            else:
                return


@contextmanager
def remains(log: Path, scratch: Path) -> Iterator[Remains]:
    """Yield a reader of a log that no process has open; `scratch` is a new path on its file system."""
    db = None
    if log.is_dir():
        db = _open(log, scratch)
    try:
        yield Remains(db)
    finally:
        if db is not None:
            db.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _open(log: Path, scratch: Path) -> Rdict | None:
    for attempt in _as_it_is, _repaired:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        for file in log.iterdir():
            if file.suffix in _IMMUTABLE:
                os.link(file, scratch / file.name)
            elif file.is_file() and not file.name.startswith(("LOG", "LOCK")):
                shutil.copyfile(file, scratch / file.name)
        with suppress(Exception):  # rocksdict's errors have no common base.
            return attempt(scratch)
    return None


def _as_it_is(path: Path) -> Rdict:
    manifests = [file for file in path.glob("MANIFEST-*") if file.stat().st_size]
    if not (path / "CURRENT").exists() and manifests:
        (path / "CURRENT").write_text(f"{max(manifests).name}\n")
    return Rdict(str(path), options(PREFIX), access_type=AccessType.read_only(False))


def _repaired(path: Path) -> Rdict:
    # A repair finds tables and write-ahead logs without their list, but loses the values in blob files.
    Rdict.repair(str(path), options(PREFIX))
    return Rdict(str(path), options(PREFIX), access_type=AccessType.read_only(False))


class NewLog:
    """Writes a new log from the remains of another. One thread at a time."""

    def __init__(self, path: Path, name: bytes | None, group: int) -> None:
        path.mkdir(mode=0o700)
        self._store = Store.open(path)
        self._batch, self._bytes = WriteBatch(raw_mode=True), 0
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

    def keep(self, tp: TopicPartition, old: Remains, end: int) -> Kept:
        """Write the readable records of a partition, and skip the offsets of the others.

        `end` is the offset after the last known record.
        """
        at = first = old.earliest(tp)
        count, timestamp, gaps = 0, 0, []
        for record in old.records(tp):
            if record.offset > at:
                gaps.append(range(at, record.offset))
            self.append(tp, record)
            at, timestamp, count = record.offset + 1, record.timestamp, count + 1
        if end > at:
            gaps.append(range(at, end))
        topic_id = self._topics[tp.topic]
        self._put(layout.earliest_key(topic_id, tp.partition), layout.pack_pair(first, timestamp))
        self._put(layout.next_key(topic_id, tp.partition), layout.pack_offset(max(at, end) + SKIPPED))
        # Marks the partition as sparse: missing offsets are not damage from now on.
        self._put(layout.clean_key(topic_id, tp.partition), layout.pack_pair(0, 0))
        return Kept(count, first, at, gaps)

    def _put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._bytes += len(key) + len(value)
        if self._bytes > BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._store.write_patiently(self._batch)
        self._batch, self._bytes = WriteBatch(raw_mode=True), 0

    def close(self) -> None:
        """Wait until the log is on the disk; raise ServiceError if it cannot be written."""
        try:
            self._flush()
            self._store.sync()
        finally:
            self._store.close()
