"""Checks that a database file exists, is whole and is not older than it was, before anything writes to it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from infra.db.secret import CHANGES
from streams.embedded.errors import REMEDIES
from topics.errors import ServiceError

#: The largest database that is checked thoroughly.
THOROUGH_BYTES: Final = 64 * 1024 * 1024
#: How many steps of its virtual machine SQLite takes between two questions whether to stop: some milliseconds.
PROGRESS_STEPS: Final = 10_000


class DatabaseLost(ServiceError):
    """Part of a database is missing or unreadable."""


def read_only(file: Path) -> sqlite3.Connection:
    """Open a database that other connections may write to."""
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)


def check(file: Path, changes: int, begun: bool, stopped: Callable[[], bool] = lambda: False) -> None:
    """Check a database file, which may be missing, without changing it.

    Args:
        changes: the number of its last change.
        begun: there is a log, which always begins after its database.
        stopped: ends the check early, without a result, once it returns True.

    Raises:
        DatabaseLost: it is missing, damaged, or older than it was.
    """
    if not file.exists() or not file.stat().st_size:
        if begun or changes:
            state = "empty" if file.exists() else "missing"
            raise DatabaseLost(f"the database {file} is {state}, although there was one beside the log: {REMEDIES}")
        return
    try:
        with closing(read_only(file)) as connection:
            connection.set_progress_handler(stopped, PROGRESS_STEPS)
            # The quick check does not compare indexes with tables, which takes most of the time.
            pragma = "integrity_check" if file.stat().st_size <= THOROUGH_BYTES else "quick_check"
            (found,) = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
            has_secrets = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'secrets'").fetchone()
            query = "SELECT value FROM secrets WHERE name = ?"
            row = connection.execute(query, (CHANGES,)).fetchone() if has_secrets else None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _DAMAGE:
            return  # Opening it reports the error, and `stopped` interrupts with one.
        found, row = str(error), None
    if found != "ok":
        raise DatabaseLost(f"the database {file} is damaged ({found.splitlines()[-1]}): {REMEDIES}")
    there = 0 if row is None else int(row[0])
    if there < changes:
        raise DatabaseLost(f"the database {file} ends at change {there}, and there were {changes}: {REMEDIES}")


_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
