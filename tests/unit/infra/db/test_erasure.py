"""Deleted rows leave the files of a SQLite database, also what its pages kept of them when they were split."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import bindparam, text

from infra.db.database import Database
from topics.errors import Unavailable

ROWS = 3000


def fill(file: Path) -> list[str]:
    """Fill a table so that its pages split often; return the names in random order."""
    draw = random.Random(1)
    names = [f"name-{draw.getrandbits(64):016x}" for _ in range(ROWS)]
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for pragma in "journal_mode = WAL", "synchronous = OFF", "secure_delete = ON":
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE pets (name TEXT PRIMARY KEY, picture BLOB)")
        for name in names:
            connection.execute("INSERT INTO pets VALUES (?, ?)", (name, draw.randbytes(draw.randint(10, 900))))
        for name in names[::2]:
            connection.execute("UPDATE pets SET picture = zeroblob(1) WHERE name = ?", (name,))
    draw.shuffle(names)
    return names


async def delete(database: Database, names: list[str]) -> None:
    query = text("DELETE FROM pets WHERE name IN :names").bindparams(bindparam("names", expanding=True))
    async with database.writing() as connection:
        await connection.execute(query, {"names": names})


def found(file: Path, names: list[str]) -> int:
    data = b"".join(path.read_bytes() for path in file.parent.glob(f"{file.name}*"))
    return sum(name.encode() in data for name in names)


async def test_deleted_rows_leave_all_pages(tmp_path: Path) -> None:
    file = tmp_path / "pets.db"
    names = fill(file)
    database = Database(f"sqlite+aiosqlite:///{file}")
    await delete(database, names[:1500])
    await database.scrub()
    assert found(file, names[:1500]), "SQLite keeps some in the unused parts of its pages"
    await database.erase()
    assert found(file, names[:1500]) == 0
    assert found(file, names[1500:]) == 1500
    written = file.stat().st_mtime_ns
    await database.erase()
    assert file.stat().st_mtime_ns == written, "nothing was deleted since"
    await delete(database, ["nobody"])
    await database.erase()
    assert file.stat().st_mtime_ns == written
    await database.close()


async def test_file_is_not_written_anew_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pets.db"
    names = fill(file)
    database = Database(f"sqlite+aiosqlite:///{file}")
    await delete(database, names[:1500])
    with monkeypatch.context() as patched:
        patched.setattr("infra.db.erasure.shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
        with pytest.raises(Unavailable, match="no room to write it anew"):
            await database.erase()
    await database.erase()
    assert found(file, names[:1500]) == 0
    await database.close()
