"""The table: scans, batches and tombstones in RocksDB, and offsets that are persisted lazily."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import rocksdict
from faust.tables.recovery import Recovery, ServiceStopped
from faust.types import TP
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.driver.application import Application
from streams.driver.table import PartitionRows, RowTable
from tests.unit.streams.driver.applications import options
from tests.unit.streams.sessions.rows import MemoryPartition
from topics.catalog import CHANGELOG
from topics.errors import Unavailable

short_keys = st.binary(min_size=1, max_size=3)
batches = st.lists(st.dictionaries(short_keys, st.none() | st.binary(max_size=4), max_size=6), max_size=5)


class Writer:
    """Notes what goes to the changelog; says how far it is durable."""

    def __init__(self) -> None:
        self.changelog: list[tuple[str, int, bytes | None, bytes | None]] = []
        self.durable: int | None = None

    def append_soon(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        self.changelog.append((topic, partition, key, value))

    def end(self, tp: TP) -> int | None:
        return self.durable


@pytest.fixture
def table(tmp_path: Path) -> Iterator[RowTable]:
    """The real table of an application that is not started, with partition 1 open."""
    app = Application(options(tmp_path), lambda error: None, SimpleNamespace())
    (tmp_path / "v1" / "tables").mkdir(parents=True)
    app.producer = SimpleNamespace(writer=Writer())
    app.row_table.data._db_for_partition(1)
    yield app.row_table
    asyncio.run(app.row_table.data.stop())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=batches, lower=short_keys, upper=short_keys, limit=st.none() | st.integers(0, 4))
def test_rows_are_those_of_a_sorted_dict(
    tmp_path: Path, batches: list[dict[bytes, bytes | None]], lower: bytes, upper: bytes, limit: int | None
) -> None:
    database = rocksdict.Rdict(str(tmp_path / "db"), options=rocksdict.Options(raw_mode=True))
    for key in list(database.keys()):
        del database[key]
    writer, twin = Writer(), MemoryPartition(3)
    rows = PartitionRows(3, database, "log", writer)  # type: ignore[arg-type]
    for changes in batches:
        rows.write(changes)
        twin.write(changes)
    scan = list(rows.scan(lower, upper, limit)) if lower < upper else []
    assert scan == (list(twin.scan(lower, upper, limit)) if lower < upper else [])
    assert list(rows.scan(b"\x00", b"\xff" * 5)) == sorted(twin.rows.items())
    assert all(rows.get(key) == twin.get(key) for key in [lower, upper, *twin.rows])
    # The changelog has every change in its order, a deletion as a record without value.
    assert writer.changelog == [("log", 3, key, value) for key, value in twin.changelog]
    database.close()


def test_a_partition_that_is_not_open_has_no_rows(table: RowTable) -> None:
    table.rows(1).write({b"key": b"value"})
    assert table.rows(1).get(b"key") == b"value"
    with pytest.raises(Unavailable, match="partition 0 has no ready owner"):
        table.rows(0)


def test_offsets_are_remembered_and_written_when_asked(table: RowTable) -> None:
    tp = TP(CHANGELOG, 1)
    table.data.set_persisted_offset(tp, 7)
    assert table.data.persisted_offset(tp) is None
    table.data.persist()
    assert table.data.persisted_offset(tp) == 7


def test_what_is_persisted_is_what_the_changelog_has(table: RowTable) -> None:
    tp, writer = TP(CHANGELOG, 1), table.app.producer.writer
    table.rows(1).write({b"key": b"value"})
    table.persist_offsets()
    assert table.data.persisted_offset(tp) is None
    writer.durable = 1
    table.persist_offsets()
    assert table.data.persisted_offset(tp) == 0


def test_offsets_are_written_at_the_end(table: RowTable) -> None:
    table.data.set_persisted_offset(TP(CHANGELOG, 1), 9)
    asyncio.run(table.data.stop())
    table.data._db_for_partition(1)
    assert table.data.persisted_offset(TP(CHANGELOG, 1)) == 9


def test_partitions_that_go_away_are_closed_at_once(table: RowTable) -> None:
    table.data.revoke_partitions(table, {TP(CHANGELOG, 1), TP(CHANGELOG, 0), TP("other", 1)})
    with pytest.raises(Unavailable):
        table.rows(1)
    # The directory's lock is free again.
    table.data._db_for_partition(1)


def test_the_offset_is_no_row_of_a_session(table: RowTable) -> None:
    table.data.set_persisted_offset(TP(CHANGELOG, 1), 9)
    table.data.persist()
    assert list(table.rows(1).scan(b"\x01", b"\x03")) == []


def test_a_log_that_does_not_answer_a_recovery_is_a_failure(tmp_path: Path) -> None:
    """Stock Faust took it for an order to stop: the partitions were paused for ever, and the node was healthy."""

    async def scene() -> None:
        recovery = Application(options(tmp_path), lambda error: None, SimpleNamespace()).tables.recovery
        with pytest.raises(ServiceStopped):
            await Recovery._wait(recovery, asyncio.sleep(1), timeout=0.01)
        with pytest.raises(TimeoutError, match="no answer"):
            await recovery._wait(asyncio.sleep(1), timeout=0.01)
        recovery._stopped.set()
        with pytest.raises(ServiceStopped):
            await recovery._wait(asyncio.sleep(1), timeout=0.01)

    asyncio.run(scene())
