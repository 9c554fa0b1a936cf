"""Copies all readable rows of a damaged SQLite database into a new one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import Table

from infra.db.database import Database
from infra.db.intact import read_only
from infra.db.schema import metadata


async def copy_readable(damaged: Path, fresh: Path) -> dict[str, int]:
    """Create the database `fresh` from the readable rows of `damaged`; return the number of rows by table.

    Rows that refer to a lost row are left out. `damaged` may be missing; pass a copy, because SQLite may write to it.

    Raises:
        ServiceError: the new database cannot be written.
    """
    database = Database(f"sqlite+aiosqlite:///{fresh}")
    try:
        await database.migrate()
    finally:
        await database.close()
    kept = {}
    with closing(sqlite3.connect(fresh)) as new:
        new.execute("PRAGMA foreign_keys = ON")
        for table in metadata.sorted_tables:
            kept[table.name] = sum(_insert(new, table, row) for row in _rows(damaged, table))
        new.commit()
    return kept


def _insert(new: sqlite3.Connection, table: Table, row: dict[str, object]) -> int:
    names = ", ".join(f'"{name}"' for name in row)
    statement = f'INSERT OR IGNORE INTO "{table.name}" ({names}) VALUES ({", ".join("?" * len(row))})'
    with suppress(sqlite3.Error):
        return new.execute(statement, tuple(row.values())).rowcount
    return 0


def _rows(damaged: Path, table: Table) -> Iterator[dict[str, object]]:
    """Yield the rows that can be read from either end of a table; some may come twice."""
    for order in "ASC", "DESC":
        with suppress(sqlite3.Error), closing(read_only(damaged)) as old:
            old.row_factory = sqlite3.Row
            known = {column.name for column in table.columns}
            for row in old.execute(f'SELECT * FROM "{table.name}" NOT INDEXED ORDER BY rowid {order}'):
                yield {name: row[name] for name in row.keys() if name in known}  # noqa: SIM118
