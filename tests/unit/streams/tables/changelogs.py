"""An in-memory partition of the changelog, and tables in a temporary directory that write to it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from streams.log import Ack, StoredRecord
from streams.tables.database import Databases, TableDatabase
from streams.tables.partition_rows import PartitionRows
from topics.catalog import CHANGELOG
from topics.keys import EPOCH

NUMBER = 3
#: Above the rows of the table itself.
ROWS = b"\x01", b"\xff" * 8


class Changelog:
    """The records of partition `NUMBER`, by any writer."""

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else 0

    def append_rows(
        self,
        topic: str,
        partition: int,
        rows: Mapping[bytes, bytes | None],
        epoch: int,
        durable: Callable[[], None] | None = None,
    ) -> None:
        for key, value in rows.items():
            self.append(topic, partition, key, value, epoch)
        if durable is not None:
            durable()

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None, epoch: int) -> Ack:
        assert (topic, partition) == (CHANGELOG, NUMBER)
        self.records.append(StoredRecord(self.end, 0, key, value, epoch))
        return Ack(self.end - 1, 0)

    def mark(self, epoch: int) -> int:
        """Append the marker of an epoch; return its offset."""
        return self.append(CHANGELOG, NUMBER, EPOCH, b"%d" % epoch, epoch).offset

    def compacted(self, prefix: int) -> list[StoredRecord]:
        """Return the records after compacting the first `prefix`, which keeps the last one of each key."""
        last = {record.key: record.offset for record in self.records[:prefix]}
        kept = [record for record in self.records[:prefix] if last[record.key] == record.offset]
        return [*kept, *self.records[prefix:]]


class Tables:
    """Tables of the same partition on different nodes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.now = 1_700_000_000_000
        self._databases: dict[str, TableDatabase] = {}

    def open(self, node: str, log: Changelog) -> PartitionRows:
        """Open the table of a node; reopen an open one, as after a restart."""
        if node in self._databases:
            self._databases.pop(node).close()
        self._databases[node] = Databases(self._directory / node).open(NUMBER)
        return self.again(node, log)

    def again(self, node: str, log: Changelog) -> PartitionRows:
        return PartitionRows(NUMBER, self._databases[node], log, lambda: self.now)  # type: ignore[arg-type]

    def fresh(self, node: str, log: Changelog) -> PartitionRows:
        """Open an empty table of a node, reusing the database, which is slow to open."""
        if node not in self._databases:
            return self.open(node, log)
        database = self._databases[node]
        for key in list(database.rocks.keys()):
            database.rocks.delete(key)
        return self.again(node, log)

    def close(self) -> None:
        for database in self._databases.values():
            database.close()


def replay(rows: PartitionRows, records: Sequence[StoredRecord], size: int = 1000) -> PartitionRows:
    """Apply the records that a table lacks, `size` at a time."""
    missing = [record for record in records if record.offset >= rows.applied.offset]
    for first in range(0, len(missing), size):
        rows.apply(missing[first : first + size])
    return rows


def content(rows: PartitionRows) -> dict[bytes, bytes]:
    return dict(rows.scan(*ROWS))


def pairs(records: Sequence[StoredRecord]) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    return ((record.key, record.value, record.epoch) for record in records)
