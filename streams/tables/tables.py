"""Opens the tables of a node, and rebuilds those that are damaged or do not match their changelog."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from streams.disk import DatabaseDamaged, DatabaseFailed
from streams.log import LogWriter
from streams.tables.database import Databases
from streams.tables.partition_rows import PartitionRows, TableOutdated, TableUnfit

log = structlog.get_logger(__name__)

#: A table that a node does not need is kept for this long, because its partition may come back.
UNUSED_SECONDS: Final = 3600.0


class Rebuilt(NamedTuple):
    """A table that was rebuilt from its changelog."""

    partition: int
    reason: str
    #: The path of the old files, or "" if they were deleted.
    path: str
    #: Whether the old table had more than the log.
    is_lost: bool = False

    def sentence(self) -> str:
        aside = f"the old one is {self.path}" if self.path else "the old one was not kept"
        lost = ", and what the log does not have may be lost" if self.is_lost else ""
        return f"the table of partition {self.partition} was rebuilt from the log ({self.reason}){lost}; {aside}"


class Tables:
    """Opens the tables of a node. Any thread, but `open` and `mend` never on the loop; one for each partition."""

    def __init__(self, databases: Databases, writer: LogWriter, now_ms: Callable[[], int]) -> None:
        #: Tables rebuilt since the start, oldest first.
        self.rebuilt: list[Rebuilt] = []
        self._databases = databases
        self._writer = writer
        self._now_ms = now_ms

    def open(self, number: int) -> PartitionRows:
        """Open the table of a partition; set a damaged one aside, and replace it by an empty one.

        Raises:
            DiskFull: there is no room to open the table.
            DatabaseFailed: the table cannot be opened now.
        """
        try:
            return self._open(number)
        except DatabaseDamaged as error:
            self._set_aside(number, error)
            return self._open(number)

    def _open(self, number: int) -> PartitionRows:
        database = self._databases.open(number)
        try:
            return PartitionRows(number, database, self._writer, self._now_ms)
        except BaseException as error:
            database.close()
            if isinstance(error, msgspec.DecodeError | msgspec.ValidationError):
                raise DatabaseDamaged(str(error)) from error
            raise

    def mend(self, rows: PartitionRows, fault: Exception) -> PartitionRows:
        """Reopen a failed table, or replace it by an empty one; raise like `open`."""
        with suppress(DatabaseFailed):
            rows.close()
        if isinstance(fault, TableOutdated):
            self._databases.wipe(rows.number)
            self._note(rows.number, fault, "")
        elif isinstance(fault, DatabaseDamaged):
            self._set_aside(rows.number, fault)
        return self.open(rows.number)

    def note_missing(self, number: int) -> None:
        if not self._databases.left_out and all(one.partition != number for one in self.rebuilt):
            self._note(number, "its files were missing", "")

    def unused(self) -> list[int]:
        return self._databases.unused(UNUSED_SECONDS)

    def drop(self, number: int) -> None:
        """Delete the closed table of a partition; `open` makes it again."""
        self._databases.wipe(number)

    def aside(self) -> list[Path]:
        return self._databases.aside()

    def _set_aside(self, number: int, fault: DatabaseFailed) -> None:
        self._note(number, fault, str(self._databases.set_aside(number) or ""))

    def _note(self, number: int, fault: DatabaseFailed | str, path: str) -> None:
        log.error("table.rebuilt", partition=number, reason=str(fault), path=path)
        self.rebuilt.append(Rebuilt(number, str(fault), path, isinstance(fault, TableUnfit)))
