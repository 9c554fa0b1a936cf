"""The one table: rows under composite keys, a RocksDB database a partition, a compacted changelog.

Beside Faust's `Table` it writes a batch of rows at once, scans ranges, and keeps the persisted offset lazily: the
offset may lag, since recovery then only writes rows again that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import faust
import rocksdict
from faust.stores.rocksdb import Store
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery, ServiceStopped
from faust.types import TP

from streams.log import LogWriter
from topics.errors import Unavailable

WRITE_BUFFER: Final = 8 * 1024 * 1024
BLOCK_CACHE: Final = 32 * 1024 * 1024
OPEN_FILES: Final = 64


class RowStore(Store):  # type: ignore[misc]
    """RocksDB databases with bounds that fit many partitions in one process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # One cache for all partitions: with one each, memory would grow with their number.
        self._cache = rocksdict.Cache(BLOCK_CACHE)
        self._persisted: dict[TP, int] = {}

    def _open_for_partition(self, partition: int) -> rocksdict.Rdict:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(WRITE_BUFFER)
        options.set_max_write_buffer_number(2)
        options.set_max_open_files(OPEN_FILES)
        options.set_keep_log_file_num(2)
        options.set_max_total_wal_size(4 * WRITE_BUFFER)
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        return rocksdict.Rdict(str(self.partition_path(partition)), options=options)

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Remember an offset; `persist` writes it."""
        self._persisted[tp] = offset

    def persist(self) -> None:
        """Write the offsets that were remembered."""
        persisted, self._persisted = self._persisted, {}
        for tp, offset in persisted.items():
            database = self._dbs.get(tp.partition)
            if database is not None:
                database.put(self.offset_key, str(offset).encode())

    def revoke_partitions(self, table: Any, tps: set[TP]) -> None:
        """Close the databases of partitions that went away, at once and not when memory is collected."""
        for tp in tps:
            if tp.topic in table.changelog_topic.topics and (database := self._dbs.pop(tp.partition, None)) is not None:
                database.close()

    async def stop(self) -> None:
        """Write what is remembered and close every database."""
        self.persist()
        for database in self._dbs.values():
            database.close()
        self._dbs.clear()


class PartitionRows:
    """The rows of one partition, read and written in its RocksDB database and logged to the changelog."""

    def __init__(self, number: int, database: rocksdict.Rdict, changelog: str, writer: LogWriter) -> None:
        self.number = number
        self._database = database
        self._changelog = changelog
        self._writer = writer

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        value: bytes | None = self._database.get(key)
        return value

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with lower <= key < upper in order."""
        bounds = rocksdict.ReadOptions()
        bounds.set_iterate_lower_bound(lower)
        bounds.set_iterate_upper_bound(upper)
        iterator = self._database.iter(bounds)
        iterator.seek(lower)
        left = -1 if limit is None else limit
        while left and iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
            left -= 1
        iterator.status()

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Apply changes to the database at once, then log each to the changelog."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._database.write(batch)
        append, topic, number = self._writer.append_soon, self._changelog, self.number
        for key, value in changes.items():
            append(topic, number, key, value)


class RowRecovery(Recovery):  # type: ignore[misc]
    """Faust's recovery, for which a log that does not answer in time is a failure, and no order to stop for ever."""

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        try:
            await super()._wait(coro, timeout)
        except ServiceStopped:
            if self.should_stop:
                raise
            raise TimeoutError(f"recovery: no answer of the log in {timeout} s") from None


class Tables(TableManager):  # type: ignore[misc]
    """Faust's manager of tables, without its second of sleep at the start; knows which rebalance it recovers for."""

    #: Which rebalance brought the tables that are being recovered, or were.
    _rebalance = 0
    _recovery: Recovery | None = None

    @property
    def recovery(self) -> Recovery:
        """Return the recovery of these tables."""
        if self._recovery is None:
            self._recovery = RowRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        """Register the changelogs and begin recovery."""
        await self._update_channels()
        await self.recovery.start()

    async def on_rebalance(self, *args: Any, **kwargs: Any) -> None:
        """Open and close tables, and begin the recovery of new ones."""
        await super().on_rebalance(*args, **kwargs)
        self._rebalance = self.app.rebalancing_count

    def recovered_for(self, rebalance: int) -> bool:
        """Return True when the recovery that just ended is that of this rebalance, and not of one before it."""
        return self._rebalance == rebalance and not self.recovery.signal_recovery_start.is_set()


class RowTable(faust.Table):  # type: ignore[misc]
    """The table of all rows."""

    def __init__(self, app: Any, **kwargs: Any) -> None:
        super().__init__(app, key_type=bytes, value_type=bytes, **kwargs)

    def _new_store_by_url(self, url: Any) -> RowStore:
        return RowStore(
            url, self.app, self, table_name=self.name, key_type=bytes, value_type=bytes,
            key_serializer="raw", value_serializer="raw", loop=self.loop, options={"driver": "rocksdict"},
        )  # fmt: skip

    def rows(self, partition: int) -> PartitionRows:
        """Return the rows of an owned partition.

        Raises:
            Unavailable: the partition is not open here.
        """
        database = self.data._dbs.get(partition)
        if database is None:
            raise Unavailable(f"partition {partition} has no ready owner here")
        return PartitionRows(partition, database, self.changelog_topic_name, self.app.producer.writer)

    def persist_offsets(self) -> None:
        """Note how far the local rows are known to be in the changelog; call after a flush."""
        for partition in self.data._dbs:
            tp = TP(self.changelog_topic_name, partition)
            if end := self.app.producer.writer.end(tp):
                self.data.set_persisted_offset(tp, end - 1)
        self.data.persist()
