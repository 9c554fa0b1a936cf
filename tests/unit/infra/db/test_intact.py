"""A database that has lost something is not opened, and a missing one is not made anew beside a log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from infra.db.database import Database
from infra.db.intact import check
from topics.errors import ServiceError

#: Changes of the database that `killed` returns.
CHANGES = 5


async def killed(directory: Path) -> Path:
    """Return a database as a kill leaves it, with changes in its log of writes."""
    database = Database(f"sqlite+aiosqlite:///{directory}/open.db")
    await database.migrate()
    numbers: list[int] = []
    database.note_change = numbers.append
    for number in range(CHANGES):
        async with database.writing() as connection:
            row = {"id": str(number), "name": str(number) * 3000, "at": 0}
            await connection.execute(text("INSERT INTO organizations VALUES (:id, :name, :at)"), row)
    assert numbers == [*range(1, CHANGES + 1)]
    for suffix in "", "-wal":
        shutil.copy(directory / f"open.db{suffix}", directory / f"killed.db{suffix}")
    await database.close()
    for suffix in "-wal", "-shm":
        assert not (directory / f"open.db{suffix}").exists()
    return directory / "killed.db"


async def test_what_is_whole_passes(tmp_path: Path) -> None:
    for file in await killed(tmp_path), tmp_path / "open.db":
        check(file, CHANGES, True)
        check(file, 0, False)
        with pytest.raises(
            ServiceError, match=f"ends at change {CHANGES}, and there were {CHANGES + 1}: .earshot restore"
        ):
            check(file, CHANGES + 1, True)
    check(tmp_path / "none.db", 0, False)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 5000)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [Path.unlink, empty, cut, flip])
async def test_a_log_of_writes_that_lost_some_is_noticed(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    file = await killed(tmp_path)
    wal = file.with_name("killed.db-wal")
    damage(wal)
    before = wal.read_bytes() if wal.exists() else None
    with pytest.raises(
        ServiceError, match=r"killed.db (ends at change \d, and there were 5|is damaged .*): .earshot restore"
    ):
        check(file, CHANGES, True)
    assert before is None or wal.read_bytes() == before


@pytest.mark.parametrize("damage", [Path.unlink, empty, cut])
async def test_a_file_that_lost_some_is_noticed(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    await killed(tmp_path)
    file = tmp_path / "open.db"
    damage(file)
    with pytest.raises(ServiceError, match=r"open.db is (missing|empty|damaged).*: .earshot restore BACKUP"):
        check(file, 0, True)


async def test_what_says_that_it_is_none_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    file.write_bytes(b"nothing" * 1000)
    with pytest.raises(ServiceError, match=r"is damaged .*not a database"):
        check(file, 0, False)
