"""Watches for full disks, and logs once when one fills up and once when it has room again."""

import asyncio
from itertools import chain

import structlog

from streams.node.backend import LogBackend
from streams.node.owners import Owners
from streams.node.partition_consumer import DISK_SECONDS
from streams.node.standbys import Standbys
from streams.tables.database import DISK_FULL
from streams.tables.partition_rows import PartitionRows

log = structlog.get_logger(__name__)


class DiskWatch:
    """Watches the disks of a node's log and tables. Loop only."""

    def __init__(self, backend: LogBackend, owners: Owners, standbys: Standbys) -> None:
        self._backend = backend
        self._owners = owners
        self._standbys = standbys

    def full(self) -> str | None:
        """Return which disk is full, None if no disk is known to be."""
        return self._backend.refuses() or (DISK_FULL if self._full_tables() else None)

    async def run(self) -> None:
        """Reopen tables once their disk has room, until cancelled; the log recovers by itself."""
        was_full = False
        while True:
            await asyncio.sleep(DISK_SECONDS)
            for rows in self._full_tables():
                await asyncio.to_thread(rows.revive)
            reason = self.full()
            if reason is not None and not was_full:
                log.error("disk.full", reason=reason)
            elif reason is None and was_full:
                log.warning("disk.has_room", queued_bytes=self._backend.writer.queued_bytes)
            was_full = reason is not None

    def _full_tables(self) -> list[PartitionRows]:
        tables = chain((owner.rows for owner in self._owners if owner.has_table), self._standbys)
        return [rows for rows in tables if rows.disk_full is not None]
