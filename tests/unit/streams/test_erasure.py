"""Deleted bytes leave a database's files, and no more files are written than those that hold them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import Options

from streams import erasure
from streams.disk import DiskDatabase
from streams.erasure import NOTED, Deletions

Put = dict[bytes, bytes | None]
KIB = 1024
ROWS = 4000


def options() -> Options:
    opts = Options(raw_mode=True)
    opts.create_if_missing(True)
    opts.set_write_buffer_size(64 * KIB)
    opts.set_target_file_size_base(128 * KIB)
    opts.set_max_bytes_for_level_base(512 * KIB)
    opts.set_max_compaction_bytes(256 * KIB)
    return opts


def row(number: int) -> tuple[bytes, bytes]:
    return b"%06d" % number, b"value-%06d-" % number + os.urandom(1000)


class Base:
    """A database of 4 MB in some thirty files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = DiskDatabase(path, options, 4)
        for number in range(ROWS):
            self.db.rocks.put(*row(number))
        self.db.rocks.flush()
        self.db.rocks.compact_range(None, None)

    def reopen(self) -> None:
        self.db.close()
        self.db = DiskDatabase(self.path, options, 4)

    def delete(self, *numbers: int) -> None:
        keys = [row(number)[0] for number in numbers]
        for note in self.db.deletions.note(keys):
            self.db.rocks.put(note, b"")
        for key in keys:
            self.db.rocks.delete(key)

    def erase(self) -> float:
        """Do a round; return which share of the database it wrote."""
        before = self.files()
        self.db.deletions.begin()
        noted = self.db.noted()
        assert self.db.rewrite(self.db.deletions.starts(noted))
        self.db.forget(noted)
        after = self.files()
        return sum(after[name] for name in after.keys() - before.keys()) / sum(after.values())

    def files(self) -> dict[str, int]:
        return {file["name"]: file["size"] for file in self.db.rocks.live_files()}

    def found(self, number: int) -> list[str]:
        sought = b"value-%06d-" % number
        return [file.name for file in self.path.iterdir() if file.is_file() and sought in file.read_bytes()]


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Base]:
    base = Base(tmp_path / "db")
    yield base
    base.db.close()


def test_deleted_rows_leave_all_files_and_others_stay_where_they_are(base: Base) -> None:
    assert len(base.files()) > 10
    base.delete(500, 501)
    assert base.found(500)
    assert 0 < base.erase() < 0.15
    assert base.found(500) == base.found(501) == []
    assert base.found(499)
    assert base.found(502)
    assert base.db.rocks.get(row(502)[0])
    assert base.erase() == 0, "nothing was deleted since"


def test_notes_survive_restarts(base: Base) -> None:
    base.delete(10)
    base.reopen()
    base.delete(900)
    base.reopen()
    assert 0 < base.erase() < 0.3
    assert base.found(10) == base.found(900) == []
    assert base.db.noted() == []


@pytest.mark.parametrize("flushed", [False, True], ids=["in no file yet", "without older files below"])
def test_new_row_leaves_all_files(base: Base, flushed: bool) -> None:
    """A tombstone without older files below would move unchanged."""
    base.db.rocks.put(*row(7000))
    if flushed:
        base.db.rocks.flush()
    base.delete(7000)
    assert base.found(7000)
    base.erase()
    assert base.found(7000) == []


def test_deletions_during_a_round_are_kept_for_the_next(base: Base) -> None:
    base.delete(20)
    base.db.deletions.begin()
    noted = base.db.noted()
    base.delete(21)
    assert base.db.rewrite(base.db.deletions.starts(noted))
    base.db.forget(noted)
    assert len(base.db.noted()) == 1
    base.delete(22)
    base.erase()
    assert base.found(21) == base.found(22) == []


def test_very_many_deletions_rewrite_everything(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "MOST_RANGES", 3)
    base.delete(0, 200, 400, 600, 800)
    base.delete(950)
    base.erase()
    assert [base.found(number) for number in (0, 200, 400, 600, 800, 950)] == [[]] * 6


def test_closing_database_stops_a_round(base: Base) -> None:
    base.delete(1)
    base.db.close()
    assert not base.db.rewrite([b"0000"])
    base.db = DiskDatabase(base.path, options, 4)
    assert base.erase() > 0, "its notes are still there"
    assert base.found(1) == []


def test_failed_write_is_noted_again() -> None:
    deletions = Deletions(2)
    assert deletions.note([b"abc", b"abd"]) == {NOTED + b"\0\0\0\x01ab": b""}
    assert deletions.note([b"abe"]) == {}
    deletions.forget()
    assert deletions.note([b"abe"])


@pytest.mark.parametrize("kept", [lambda rows: rows, lambda rows: []])
def test_later_process_begins_a_later_round(kept: Callable[[list[bytes]], list[bytes]]) -> None:
    rows = list(Deletions(2).note([b"ab"]))
    (later,) = Deletions(2, kept(rows)).note([b"ab"])
    assert (later in rows) is (not kept(rows))
