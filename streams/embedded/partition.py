"""The in-memory state of one partition: its offsets."""

from collections.abc import Iterator

from streams.embedded import layout
from streams.embedded.errors import REMEDIES, LogDamaged
from streams.embedded.log_store import Store
from streams.log import StoredRecord
from topics.catalog import TopicPartition


class Partition:
    """Holds the offsets of one partition.

    Any thread may read it. Only the loop changes it, except for the fields of a compaction.
    """

    __slots__ = (
        "clean",
        "compacted",
        "earliest",
        "end",
        "kept",
        "next",
        "sparse_to",
        "superseded",
        "timestamp",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, topic_id: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        #: Whether superseded records are deleted.
        self.compacted = False
        #: Offsets below may be missing: all if the partition is compacted.
        self.sparse_to = 0
        #: Lowest readable offset.
        self.earliest = 0
        #: Offset after the last durable record.
        self.end = 0
        #: Offset after the last record handed to the database.
        self.next = 0
        #: Timestamp of the last record (ms).
        self.timestamp = 0
        #: Below this offset each key has one record, and `kept` counts them.
        self.clean = 0
        self.kept = 0
        #: Records from there on that were deleted since, because later ones superseded them (an estimate).
        self.superseded = 0

    def restore(self, store: Store) -> None:
        number = self.tp.partition
        if mark := store.get(layout.earliest_key(self.topic_id, number)):
            self.earliest, self.timestamp = layout.unpack_pair(mark)
        if clean := store.get(layout.clean_key(self.topic_id, number)):
            self.clean, self.kept = layout.unpack_pair(clean)
            self.sparse_to = self.clean
        self.end = self.earliest
        if last := store.last(self.key(self.earliest), self.key(layout.MAX_OFFSET)):
            record = layout.unpack_record(layout.record_offset(last[0]), last[1])
            self.end, self.timestamp = record.offset + 1, max(self.timestamp, record.timestamp)
        if floor := store.get(layout.next_key(self.topic_id, number)):
            self.end = max(self.end, layout.unpack_offset(floor))
        self.next = self.end

    def note_superseded(self, offset: int) -> None:
        if offset < self.clean:
            self.kept -= 1
        else:
            self.superseded += 1

    @property
    def dirty(self) -> int:
        """The number of records that no compaction has seen."""
        return self.end - max(self.clean, self.earliest) - self.superseded

    def key(self, offset: int) -> bytes:
        return layout.record_key(self.topic_id, self.tp.partition, offset)

    def records(self, store: Store, offset: int) -> Iterator[StoredRecord]:
        """Yield the durable records from an offset on.

        Raises:
            Unavailable: the disk fails now.
            LogDamaged: a record is missing.
        """
        for key, data in store.scan(self.key(offset), self.key(self.end)):
            record = layout.unpack_record(layout.record_offset(key), data)
            self._check_hole(offset, record.offset)
            yield record
            offset = record.offset + 1
        self._check_hole(offset, self.end)

    def _check_hole(self, start: int, stop: int) -> None:
        if (offset := max(start, self.sparse_to)) < stop:
            raise self.hole(offset)

    def hole(self, offset: int) -> LogDamaged:
        topic, number = self.tp
        return LogDamaged(
            f"the log is damaged: record {offset} of {topic}/{number} is missing: stop the service; then {REMEDIES}"
        )
