"""Compaction: keep the last record of each key of a partition.

Most records are superseded soon by another of their key. `Superseded` knows these, and the next group that is written
deletes them. A pass (`Compaction`) finds the rest. It works like Kafka's log cleaner: map each key of the dirty part to
its last offset, as many keys as fit, then read the partition from its start and delete superseded records. Deletions
are not synced: after power loss, the next pass repeats them.

Tombstones outlive the records they shadow, because a table elsewhere may have read those records and must still see
the deletion. The last record of a partition always stays, so that a reader can reach the end.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from streams.embedded import layout
from streams.embedded.log_store import Store
from streams.embedded.partition import Partition
from streams.log import StoredRecord

#: Size of the key map, some 20 MB of memory.
MAP_KEYS: Final = 100_000
#: Keys whose newest record is known without a pass, some 4 MB of memory.
RECENT_KEYS: Final = 16_384
#: Records read in about 1 ms, before the thread sleeps to let the event loop run.
SLICE: Final = 256
PAUSE: Final = 0.005


class Superseded:
    """Finds records of compacted partitions that a durable record of the same key supersedes. Loop only."""

    def __init__(self) -> None:
        #: The last offset by topic, partition and key, the least recently written first.
        self._newest: OrderedDict[tuple[int, int, bytes], int] = OrderedDict()
        #: Keys of the database to delete. Not in the group that supersedes them, because that may fail.
        self.stale: list[bytes] = []

    def note(self, records: Iterable[tuple[Partition, StoredRecord]]) -> None:
        """Note the records of a group that is durable."""
        for partition, record in records:
            if record.key is None or not partition.compacted:
                continue
            name = partition.topic_id, partition.tp.partition, record.key
            before = self._newest.pop(name, None)
            self._newest[name] = record.offset
            if before is not None:
                self.stale.append(partition.key(before))
                partition.note_superseded(before)
            elif len(self._newest) > RECENT_KEYS:
                self._newest.popitem(last=False)


class Compaction:
    """Compacts one partition once, up to its durable end at the start. One thread at a time."""

    def __init__(
        self, store: Store, partition: Partition, stopped: Callable[[], bool], tombstones_before_ms: int
    ) -> None:
        self._store = store
        self._partition = partition
        self._stopped = stopped
        self._tombstones_before = tombstones_before_ms
        self._end = partition.end

    def run(self) -> int:
        """Compact, and return the number of removed records."""
        removed = 0
        clean = max(self._partition.clean, self._partition.earliest)
        while clean < self._end and not self._stopped():
            newest, stop = self._newest(clean)
            swept, kept, complete = self._sweep(newest, stop)
            removed += swept
            if not complete:
                break
            self._remember(stop, kept)
            clean = stop
        return removed

    def _newest(self, start: int) -> tuple[dict[bytes, int], int]:
        """Return the last offset of each key from `start` on, and the offset at which the map was full."""
        newest: dict[bytes, int] = {}
        for records in self._slices(start, self._end):
            for record in records:
                if record.key is not None:
                    newest[record.key] = record.offset
            if len(newest) >= MAP_KEYS:
                return newest, records[-1].offset + 1
        return newest, self._end

    def _sweep(self, newest: dict[bytes, int], stop: int) -> tuple[int, int, bool]:
        """Delete stale records below `stop`; return the numbers removed and kept, and whether the sweep finished."""
        removed = kept = 0
        for records in self._slices(self._partition.earliest, stop):
            stale = [record.offset for record in records if self._stale(record, newest)]
            self._delete(stale)
            removed += len(stale)
            kept += len(records) - len(stale)
        return removed, kept, not self._stopped()

    def _stale(self, record: StoredRecord, newest: dict[bytes, int]) -> bool:
        if record.key is None or record.offset == self._end - 1:
            return False
        if record.offset < newest.get(record.key, 0):
            return True
        return record.value is None and record.timestamp < self._tombstones_before

    def _delete(self, offsets: list[int]) -> None:
        if not offsets:
            return
        keys = [self._partition.key(offset) for offset in offsets]
        self._store.write_patiently({**dict.fromkeys(keys), **self._store.deletions.note(keys)})

    def _slices(self, start: int, stop: int) -> Iterator[list[StoredRecord]]:
        """Yield the records of [start, stop) in slices, until all are read or the log closes."""
        key = self._partition.key
        while start < stop and not self._stopped():
            rows = islice(self._store.scan(key(start), key(stop)), SLICE)
            records = [layout.unpack_record(layout.record_offset(name), data) for name, data in rows]
            if not records:
                return
            yield records
            start = records[-1].offset + 1
            time.sleep(PAUSE)

    def _remember(self, clean: int, kept: int) -> None:
        partition = self._partition
        key = layout.clean_key(partition.topic_id, partition.tp.partition)
        self._store.write_patiently({key: layout.pack_pair(clean, kept)})
        partition.clean, partition.kept, partition.superseded = clean, kept, 0
