"""The rows of a partition: equal to a sorted dict, after a replay to the newest owner's; and rebuilt tables."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.disk import DatabaseDamaged, DatabaseFailed, DiskFull, failure_of
from streams.log import LogWriter, StoredRecord
from streams.tables import partition_rows as module_of_rows
from streams.tables import tables as module
from streams.tables.database import Databases, TableDatabase
from streams.tables.partition_rows import APPLIED, UNLOGGED, Applied, PartitionRows, TableOutdated, TableUnfit
from streams.tables.remains import remains
from tests.damage.files import cut, each, flipped
from tests.unit.streams.sessions.rows import MemoryPartition
from topics import keys
from topics.catalog import CHANGELOG, COMMANDS, JOB_RESULTS, KEEP_TOMBSTONES_MS
from topics.keys import EPOCH

short_keys = st.binary(min_size=1, max_size=3)
batches = st.lists(st.dictionaries(short_keys, st.none() | st.binary(max_size=4), max_size=6), max_size=5)
one_directory = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

NUMBER = 3
K, L, M = b"\x01k", b"\x01l", b"\x01m"


class Changelog:
    """The records of partition `NUMBER`."""

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []

    def append_rows(
        self,
        topic: str,
        partition: int,
        rows: Mapping[bytes, bytes | None],
        epoch: int,
        durable: Callable[[], None] | None = None,
    ) -> None:
        assert (topic, partition) == (CHANGELOG, NUMBER)
        self.records += records(*((key, value, epoch) for key, value in rows.items()), first=len(self.records))
        if durable is not None:
            durable()


class Tables:
    """Tables of the partition on different nodes."""

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
        rocks = self._databases[node].rocks
        for key in list(rocks.keys()):
            rocks.delete(key)
        return self.again(node, log)

    def close(self) -> None:
        for database in self._databases.values():
            database.close()


def content(rows: PartitionRows) -> dict[bytes, bytes]:
    """Return all rows, except those of the table itself."""
    return dict(rows.scan(b"\x01", b"\xff" * 8))


def pairs(log: Changelog) -> list[tuple[bytes | None, bytes | None, int]]:
    return [(record.key, record.value, record.epoch) for record in log.records]


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    tables = Tables(tmp_path)
    yield tables
    tables.close()


@pytest.fixture
def log() -> Changelog:
    return Changelog()


@pytest.fixture
def rows(tables: Tables, log: Changelog) -> PartitionRows:
    return tables.open("a", log)


def records(*written: tuple[bytes, bytes | None, int], first: int = 0) -> list[StoredRecord]:
    """Return records of the changelog: (key, value, epoch)."""
    return [StoredRecord(first + at, 0, key, value, epoch) for at, (key, value, epoch) in enumerate(written)]


# --- reading and writing --------------------------------------------------------------------------------------------


@one_directory
@given(batches=batches, lower=short_keys, upper=short_keys, limit=st.none() | st.integers(0, 4))
def test_rows_match_sorted_dict(
    tables: Tables, batches: list[dict[bytes, bytes | None]], lower: bytes, upper: bytes, limit: int | None
) -> None:
    log, twin = Changelog(), MemoryPartition(NUMBER)
    rows = tables.fresh("a", log)
    rows.epoch = 5
    for changes in batches:
        rows.write(changes)
        twin.write(changes)
    if lower < upper:
        assert list(rows.scan(lower, upper, limit)) == list(twin.scan(lower, upper, limit))
        for step in (1, 2):
            skips = [
                list(table.skip_scan(lower, upper, lambda key: key[:step] + b"\xff" * 4))  # noqa: B023
                for table in (rows, twin)
            ]
            assert skips[0] == skips[1]
    assert dict(rows.scan(b"\x00", b"\xff" * 5)) == twin.rows
    assert list(rows.scan(b"\x00", b"\xff" * 5)) == sorted(twin.rows.items())
    assert all(rows.get(key) == twin.get(key) for key in [lower, upper, *twin.rows])
    # The changelog has every change in order, a deletion as a record without value.
    assert pairs(log) == [(key, value, 5) for key, value in twin.changelog]


def test_opening_locked_table_fails(tables: Tables, tmp_path: Path) -> None:
    tables.open("a", Changelog())
    with pytest.raises(DatabaseFailed, match="lock hold by current process"):
        Tables(tmp_path).open("a", Changelog())


def test_opening_table_on_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = Exception("IO error: No space left on device: While appending to file: /data/0.db/000010.sst")
    monkeypatch.setattr("streams.disk.Rdict", mock.Mock(side_effect=error))
    with pytest.raises(DiskFull, match="the disk under the tables is full"):
        Tables(tmp_path).open("a", Changelog())


# --- replay ---------------------------------------------------------------------------------------------------------


def test_records_without_epoch_are_applied(rows: PartitionRows) -> None:
    rows.apply([StoredRecord(7, 0, K, b"v"), StoredRecord(9, 0, None, b"no key"), StoredRecord(12, 0, L, b"w")])
    assert content(rows) == {K: b"v", L: b"w"}
    assert (rows.applied.offset, rows.applied.epoch, set(rows.applied.stale)) == (13, 0, set())
    # A table adopts the name of its log with the first rows that it gets from there.
    rows.check(0, 14, b"this")
    rows.apply([StoredRecord(13, 0, K, b"v")])
    with pytest.raises(TableUnfit, match="it is of another log"):
        rows.check(0, 14, b"that")


def test_overtaken_rows_are_known_until_rewrite_is_durable(tables: Tables, log: Changelog, rows: PartitionRows) -> None:
    """An owner's rows may be lost in flight, and its table may serve the next owner, also after a restart."""
    rows.apply(records((K, b"v", 1), (EPOCH, b"2", 2), (K, b"late", 1)))
    rows = tables.open("a", log)
    rows.begin(3, 4, rows.now_ms())
    assert pairs(log) == [(K, b"v", 3)]
    log.records.clear()
    rows.epoch = 0
    rows.begin(4, 5, rows.now_ms())
    assert pairs(log) == [(K, b"v", 4)]
    rows.note({}, 6, rows.now_ms())
    assert set(rows.applied.stale) == set()


def test_deletions_are_logged_again_until_they_are_durable(tables: Tables) -> None:
    """A process that dies after it has deleted rows from its table knows their keys no more."""
    session = keys.SESSION + 24 * b"s"
    request, head, result, audio = (session + kind for kind in (keys.REQUEST, keys.HEAD, keys.RESULT, keys.AUDIO))
    log = Changelog()
    rows = tables.open("a", log)
    rows.begin(1, 1, rows.now_ms())
    rows.write({request: b"v", head: b"deleted", result: b"w", audio: b"x", K: b"y"})
    rows.write({request: None, audio: None, K: None})
    logged = rows.unlogged
    rows.write({result: None})
    rows.note({}, 3, rows.now_ms(), logged - 1)
    log = Changelog()
    rows = tables.open("a", log)
    rows.begin(2, 4, rows.now_ms())
    # The changelog may not have the last head yet, and a stand-by shows a session by its head.
    assert pairs(log) == [(request, None, 2), (head, b"deleted", 2), (result, None, 2)]
    rows.note({}, 6, rows.now_ms(), logged)
    rows.write({request: b"new"})
    log = Changelog()
    rows = tables.open("a", log)
    rows.begin(3, 7, rows.now_ms())
    assert pairs(log) == [(head, b"deleted", 3), (result, None, 3)]
    rows.note({}, 8, rows.now_ms(), rows.unlogged)
    assert list(rows.scan(UNLOGGED, b"\x01")) == []


def test_head_of_deleted_session_is_logged_before_its_windows_go(log: Changelog, rows: PartitionRows) -> None:
    """Otherwise a stand-by that has half of the records shows a session without windows."""
    head, newest = (keys.SESSION + 24 * b"s" + kind for kind in (keys.HEAD, keys.NEWEST))
    rows.begin(1, 1, rows.now_ms())
    rows.write({head: b"open", newest: b"windows"})
    assert pairs(log) == [(newest, b"windows", 1)]
    log.records.clear()
    rows.write({head: b"deleted", newest: None})
    assert pairs(log) == [(head, b"deleted", 1), (newest, None, 1)]
    assert list(rows.log_heads()) == []


def test_rows_before_an_epoch_are_read_until_the_owner_serves(tables: Tables, log: Changelog) -> None:
    """An owner that folds commands again may have what was deleted; so may its table after its death."""
    rows = tables.open("a", log)
    blocks = [keys.row_key(keys.SESSION, 24 * "s", keys.RESULT, number) for number in range(4)]
    rows.apply(records((K, b"v", 1), (blocks[0], b"0", 1), (blocks[2], b"2", 1)))
    rows.begin(2, 3, rows.now_ms())
    rows.write({K: None, M: b"again", blocks[0]: b"changed", blocks[1]: b"again", blocks[2]: None})
    before = rows.before
    assert before is not None
    assert [before.get(key) for key in (K, M)] == [b"v", None]
    assert list(before.scan(blocks[0], blocks[3])) == [(blocks[0], b"0"), (blocks[2], b"2")]
    rows = tables.open("a", log)
    with pytest.raises(DatabaseFailed):
        before.get(K)
    folding = [rows.applied.folding]
    # The next owner has noted nothing at first.
    for some in records((EPOCH, b"3", 3), (K, b"late", 2), first=3), records((keys.POSITIONS, b"", 3), first=5):
        rows.apply(some)
        folding.append(rows.applied.folding)
    assert folding == [True, True, False]
    rows.begin(4, 6, rows.now_ms())
    rows.note({}, 8, rows.now_ms())
    assert not tables.open("a", log).applied.folding


def test_positions_are_stored_with_rows(tables: Tables, log: Changelog, rows: PartitionRows) -> None:
    assert (rows.applied, rows.positions()) == (Applied(), {})
    rows.apply(records((EPOCH, b"2", 2), (K, b"v", 2), first=40))
    assert rows.get(EPOCH) is None, "a marker is no row"
    kept = tables.open("a", log)
    assert kept.applied == rows.applied
    assert (kept.applied.offset, kept.applied.epoch) == (42, 2)
    assert kept.applied.at > 0
    kept.apply(records((K, b"late", 1), first=42))
    assert content(kept) == {K: b"v"}
    kept.begin(4, 44, kept.now_ms())
    log.records.clear()
    kept.note({COMMANDS: 5, JOB_RESULTS: 7}, 49, kept.now_ms())
    kept = tables.open("a", log)
    assert kept.positions() == {COMMANDS: 5, JOB_RESULTS: 7}
    assert (kept.applied.offset, kept.applied.epoch, log.records) == (49, 4, [])


def test_leftover_rows_are_deleted_with_session_head(rows: PartitionRows) -> None:
    """Its last row never reached the changelog, so the owner that deleted the session could not know it."""
    session, other = "S" * 24, "T" * 24
    head, lost = keys.row_key(keys.SESSION, session, keys.HEAD), keys.row_key(keys.SESSION, session, keys.AUDIO, 98)
    kept = keys.row_key(keys.SESSION, other, keys.AUDIO, 98)
    rows.apply(records((head, b"head", 1)))
    rows._database.write_rows({lost: b"lost", kept: b"kept"})
    rows.apply(records((head, None, 2), first=1))
    assert content(rows) == {kept: b"kept"}
    # The owner's table lacked a row that the changelog has, and both come together.
    rows.apply(records((head, b"head", 2), (lost, b"lost", 2), (kept, b"new", 2), (head, None, 2), first=2))
    assert content(rows) == {kept: b"new"}
    # An owner that logs rows of another owner again deletes what it does not have yet, and opens the session then.
    rows.apply(records((lost, b"lost", 3), (head, None, 3), (lost, b"written after", 3), first=6))
    assert content(rows) == {kept: b"new", lost: b"written after"}


# --- age ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noted", [False, True])
def test_table_age_counts_from_last_record_of_owner(tables: Tables, rows: PartitionRows, noted: bool) -> None:
    """Sessions that were deleted while a killed owner was away must not return.

    Its first note may be missing, and acknowledgements may be read a day late.
    """
    taken = rows.now_ms()
    tables.now += KEEP_TOMBSTONES_MS
    rows.begin(1, 1, taken)
    rows.write({K: b"deleted by the next owner"})
    if noted:
        rows.note({COMMANDS: 5}, 2, taken)
    with pytest.raises(TableOutdated):
        tables.again("a", Changelog()).check(0, 9)


def test_table_age_counts_from_last_time_at_end(tables: Tables, rows: PartitionRows) -> None:
    """Not from its last write: a restore may be interrupted repeatedly."""
    rows.apply(records((K, b"v", 1)))
    tables.now += int(0.4 * KEEP_TOMBSTONES_MS)
    rows.apply(records((L, b"v", 1), first=1))
    tables.now += int(0.4 * KEEP_TOMBSTONES_MS)
    rows.check(0, 2)
    with pytest.raises(TableOutdated):
        rows.check(0, 3)
    with pytest.raises(TableOutdated):
        rows.apply(records((M, b"v", 1), first=2))
    assert content(rows) == {K: b"v", L: b"v"}


@pytest.mark.parametrize("by", ["a look", "a record", "an owner"])
def test_table_recently_at_end_is_fresh(tables: Tables, by: str) -> None:
    rows = tables.open("a", Changelog())
    rows.apply(records((K, b"v", 1)))
    tables.now += KEEP_TOMBSTONES_MS
    if by == "a look":
        rows.note_fresh(tables.now)
    elif by == "an owner":
        rows.begin(2, 1, rows.now_ms())
        rows.epoch = 0
    else:
        tables.now -= KEEP_TOMBSTONES_MS
        rows.apply([StoredRecord(1, tables.now + KEEP_TOMBSTONES_MS, L, b"w", 2)])
        tables.now += KEEP_TOMBSTONES_MS
    rows.apply([StoredRecord(5, 0, M, b"v", 2)])
    assert rows.get(M) == b"v"


# --- rebuilt tables -------------------------------------------------------------------------------------------------


def tables_in(directory: Path, left_out: bool = False) -> module.Tables:
    return module.Tables(Databases(directory, left_out), mock.Mock(spec=LogWriter), lambda: 1_700_000_000_000)


@pytest.fixture
def mended(tmp_path: Path) -> module.Tables:
    return tables_in(tmp_path)


def test_damaged_tables_are_set_aside(mended: module.Tables, tmp_path: Path) -> None:
    for number in range(5):
        mended.open(2).close()
        assert len(mended.aside()) == number
        (tmp_path / "partitions" / "2.db" / "CURRENT").unlink()
    assert all((path / "LOCK").exists() for path in mended.aside())
    assert mended.rebuilt[-1].sentence().endswith(f"CURRENT is missing); the old one is {mended.aside()[-1]}")


def test_table_with_a_damaged_block_is_set_aside_at_once(mended: module.Tables, tmp_path: Path) -> None:
    """Whatever read the block: the notes of deletions, the position, or a list of rows."""
    database = Databases(tmp_path).open(2)
    database.write_rows({K: b"v", APPLIED: msgspec.msgpack.encode(Applied(1))})
    database.write_rows({K: None})
    database.close()
    whole, case = tmp_path / "partitions" / "2.db", tmp_path / "partitions" / "3.db"
    (size,) = (file.stat().st_size for file in whole.glob("*.sst"))
    for byte in range(0, size, 20):
        shutil.copytree(whole, case)
        each("*.sst", partial(flipped, byte=byte))(case)
        mended.open(3).close()
        shutil.rmtree(case)
    assert any("checksum" in rebuilt.reason for rebuilt in mended.rebuilt)


def test_table_whose_list_of_files_lost_its_end_is_set_aside(tmp_path: Path) -> None:
    for number in range(3):
        database = Databases(tmp_path / str(number)).open(2)
        database.write_rows({b"%d" % number: b"row", APPLIED: msgspec.msgpack.encode(Applied(number))})
        shutil.copytree(tmp_path / str(number), tmp_path / str(number + 1))  # As if it were killed.
        database.close()
    with remains(tmp_path / "3", 2) as table:
        assert table is not None
    each("MANIFEST-*", partial(cut, size=20))(tmp_path / "3")
    with remains(tmp_path / "3", 2) as table:
        assert table is None
    tables = tables_in(tmp_path / "3")
    tables.open(2).close()
    assert "are missing before those in" in tables.rebuilt[-1].reason


def test_table_that_was_killed_before_its_first_note_is_read(tmp_path: Path) -> None:
    database = Databases(tmp_path / "3").open(2)
    database.write_rows({K: b"v"})
    database.close()
    with remains(tmp_path / "3", 2) as table:
        assert table is not None
        assert (list(table.rows()), table.is_of(b"log"), table.completes(7, 10**12)) == ([(K, b"v")], True, True)


def test_file_in_place_of_a_table_is_set_aside(mended: module.Tables, tmp_path: Path) -> None:
    (tmp_path / "partitions").mkdir()
    (tmp_path / "partitions" / "2.db").write_bytes(b"")
    mended.open(2).close()
    assert (len(mended.aside()), mended.rebuilt[-1].reason) == (1, "2.db is not a directory")


def test_table_whose_creation_was_interrupted_is_created(mended: module.Tables, tmp_path: Path) -> None:
    """A full disk leaves such files; setting them aside at each attempt would fill it more."""
    path = tmp_path / "partitions" / "2.db"
    path.mkdir(parents=True)
    for name in "MANIFEST-000001", "LOG", "LOCK", "IDENTITY", "000001.dbtmp":
        (path / name).write_bytes(b"")
    mended.open(2).close()
    assert (mended.aside(), mended.rebuilt) == ([], [])


def test_table_that_somebody_removed_is_made_anew(mended: module.Tables, tmp_path: Path) -> None:
    rows = mended.open(2)
    shutil.rmtree(tmp_path / "partitions" / "2.db")
    mended.mend(rows, DatabaseDamaged("IO error: No such file or directory")).close()
    assert (mended.aside(), mended.rebuilt[-1].path) == ([], "")


@pytest.mark.parametrize("left_out", [False, True])
def test_missing_table_is_reported_unless_left_out(left_out: bool, tmp_path: Path) -> None:
    tables = tables_in(tmp_path, left_out)
    tables.note_missing(2)
    assert len(tables.rebuilt) == (not left_out)


@pytest.mark.parametrize("path", ["/data/log/000012.sst", "/data/my clone/log/000012.sst"])
def test_errors_of_database_hide_its_directory(path: str) -> None:
    """Clients may see the message."""
    failure = failure_of(f"IO error: While pread offset 1 len 9: {path}: Input/output error")
    assert str(failure) == "IO error: While pread offset 1 len 9: 000012.sst: Input/output error"


def test_rebuild_of_foreign_table_warns_of_data_loss(mended: module.Tables) -> None:
    mended.mend(mended.open(2), TableUnfit("it is of another log")).close()
    assert "what the log does not have may be lost; the old one is " in mended.rebuilt[-1].sentence()


def test_row_logged_first_is_logged_again_as_it_is_on_its_way(tables: Tables) -> None:
    """What an earlier owner had on its way is in the changelog, or lost."""
    log = Changelog()
    rows = tables.open("a", log)
    rows.begin(1, 0, 0)
    rows.write({K: b"old"})
    rows.log_first({K: b"new"}, lambda: None)
    rows.write_again([K])
    assert log.records[-1].value == b"new"
    assert rows.get(K) == b"old"
    rows.write({}, {K: b"new"})
    rows.log_first({K: b"lost"}, lambda: None)
    rows.begin(2, len(log.records), 0)
    rows.write_again([K])
    assert log.records[-1].value == rows.get(K) == b"new"


def test_heads_of_sessions_are_logged_on_demand_as_they_are_then(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of jobs at once, and so are deletions."""
    monkeypatch.setattr(module_of_rows, "HEADS", 2)
    log = Changelog()
    rows = tables.open("a", log)
    rows.begin(1, 0, 0)
    heads = [keys.row_key(keys.SESSION, letter * keys.ID_LENGTH, keys.HEAD) for letter in "abcde"]
    job = keys.row_key(keys.JOB, "a" * keys.ID_LENGTH, keys.HEAD)
    for value in b"1", b"2":
        rows.write({**dict.fromkeys(heads, value), job: value})
    rows.write({heads[0]: None})
    assert [(one.key, one.value) for one in log.records] == [(job, b"1"), (job, b"2"), (heads[0], None)]
    steps = rows.log_heads()
    next(steps)
    assert [(one.key, one.value) for one in log.records[3:]] == [(heads[1], b"2"), (heads[2], b"2")]
    rows.write({heads[1]: b"3", heads[3]: b"3", heads[4]: None})
    for _ in steps:
        pass
    assert [(one.key, one.value) for one in log.records[5:]] == [(heads[4], None), (heads[3], b"3")]
    for _ in rows.log_heads():
        pass
    assert [(one.key, one.value) for one in log.records[7:]] == [(heads[1], b"3")]


def test_head_of_deleted_session_is_logged_before_its_newest_windows_are_gone(tables: Tables) -> None:
    """If the owner stops right after it, the next one bills the windows that the head counts."""
    log = Changelog()
    rows = tables.open("a", log)
    rows.begin(1, 0, 0)
    head, newest = (keys.row_key(keys.SESSION, "a" * keys.ID_LENGTH, kind) for kind in (keys.HEAD, keys.NEWEST))
    rows.write({head: b"open", newest: b"two windows"})
    rows.write({newest: None, head: b"deleted, two windows"})
    assert [(one.key, one.value) for one in log.records] == [
        (newest, b"two windows"),
        (head, b"deleted, two windows"),
        (newest, None),
    ]
    assert not list(rows.log_heads())
