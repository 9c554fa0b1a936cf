"""Erases deleted rows from the files of a SQLite database.

SQLite overwrites deleted rows (`secure_delete`), but a page that it split before may still have a copy of them in its
unused part, and the write-ahead log has the pages of before.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPICursor

from topics.errors import Unavailable

BUSY_SECONDS: Final = 5
#: How long a checkpoint waits for readers, while writers wait for it.
SCRUB_SECONDS: Final = 0.2
#: The largest number of SQLite's `user_version`, which counts the statements that deleted rows.
MOST_DELETIONS: Final = 2**31 - 2


def note_deletion(
    connection: Connection, cursor: DBAPICursor, statement: str, parameters: Any, context: Any, many: bool
) -> None:
    """Note a statement that deleted rows, for `vacuum`: in its transaction, so that no crash loses the note."""
    if statement.startswith("DELETE") and cursor.rowcount:
        number = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        connection.exec_driver_sql(f"PRAGMA user_version = {number % MOST_DELETIONS + 1}")


def vacuum(file: str) -> None:
    """Write the database file anew if rows were deleted since the last time.

    Raises:
        sqlite3.Error: another program uses it, or its disk fails.
        Unavailable: its disk has no room for a copy.
    """
    with closing(sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        deleted = connection.execute("PRAGMA user_version").fetchone()
        if deleted == (0,):
            return
        path = Path(file)
        if shutil.disk_usage(path.parent).free < 3 * path.stat().st_size:
            raise Unavailable("the disk under the database has no room to write it anew without deleted rows")
        connection.execute("VACUUM")
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone() == deleted:
            connection.execute("PRAGMA user_version = 0")
        connection.execute("COMMIT")


def checkpoint(file: str) -> bool:
    """Move the write-ahead log into the database and empty it; return False if a reader or writer prevented it."""
    with closing(sqlite3.connect(file, timeout=SCRUB_SECONDS, isolation_level=None)) as connection:
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy
