"""A database on a full disk: always readable, it refuses writes until there is room."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from rocksdict import Options, Rdict

from streams.disk import DiskDatabase, DiskFull


def options() -> Options:
    opts = Options(raw_mode=True)
    opts.create_if_missing(True)
    return opts


@pytest.fixture
def database(tmp_path: Path) -> Iterator[DiskDatabase]:
    opened = DiskDatabase(tmp_path / "db", options, 1)
    opened.write(lambda rocks: rocks.put(b"before", b"1"))
    yield opened
    opened.close()


def refuse(rocks: Rdict) -> None:
    raise Exception("IO error: No space left on device: While appending to file: 000004.log")


def fill(database: DiskDatabase) -> None:
    with pytest.raises(DiskFull) as refusal:
        database.write(refuse)
    assert refusal.value.retry_after > 0


def test_full_database_is_only_read_until_there_is_room(
    database: DiskDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database.revive()
    fill(database)
    assert "No space left" in (database.full or "")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        for _ in range(2):
            assert not database.revive()
            assert database.rocks.get(b"before") == b"1"
            with pytest.raises(DiskFull):
                database.write(lambda rocks: rocks.put(b"refused", b"1"))
    assert database.revive()
    assert database.full is None
    database.write(lambda rocks: rocks.put(b"after", b"1"))
    assert [database.rocks.get(key) for key in (b"before", b"refused", b"after")] == [b"1", None, b"1"]


def test_open_iterator_only_delays_revival(database: DiskDatabase) -> None:
    iterator = database.rocks.iter()
    iterator.seek(b"a")
    fill(database)
    assert not database.revive()
    assert (iterator.key(), database.rocks.get(b"before")) == (b"before", b"1")
    del iterator
    assert database.revive()


def test_other_errors_propagate_unchanged(database: DiskDatabase) -> None:
    def fail(rocks: Rdict) -> None:
        raise Exception("Corruption: checksum")

    with pytest.raises(Exception, match="Corruption"):
        database.write(fail)
    assert database.full is None


def test_closing_on_full_disk_keeps_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = DiskDatabase(tmp_path / "db", options, 1)
    database.write(lambda rocks: rocks.put(b"before", b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        database.close()
        assert not database.revive()
    again = DiskDatabase(tmp_path / "db", options, 1)
    assert again.rocks.get(b"before") == b"1"
    again.close()


def test_closed_database_is_not_revived(tmp_path: Path) -> None:
    database = DiskDatabase(tmp_path / "db", options, 1)
    fill(database)
    database.close()
    assert not database.revive()
    DiskDatabase(tmp_path / "db", options, 1).close()


def test_deleted_database_can_be_closed(tmp_path: Path) -> None:
    opened = DiskDatabase(tmp_path / "db", options, 1)
    shutil.rmtree(tmp_path / "db")
    opened.close()
