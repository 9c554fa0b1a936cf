"""Tables of other nodes' partitions, kept up with the changelog: a takeover then has little to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence, Set

import structlog

from streams.log import StoredRecord
from streams.node.backend import LogBackend
from streams.node.takeover import Takeover
from streams.tables.rows import PartitionRows
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import EarshotError

log = structlog.get_logger(__name__)


class Standbys:
    """The open tables of a node that it does not own."""

    def __init__(self, takeover: Takeover, backend: LogBackend) -> None:
        self._takeover = takeover
        self._backend = backend
        self._rows: dict[int, PartitionRows] = {}

    def __iter__(self) -> Iterator[PartitionRows]:
        return iter(list(self._rows.values()))

    def take(self, number: int) -> PartitionRows:
        """Return the table of a partition that this node owns now: the stand-by, or the one in its directory."""
        rows = self._rows.pop(number, None)
        self._follow()
        return self._takeover.open(number) if rows is None else rows

    def give(self, rows: PartitionRows) -> None:
        """Take the table of a partition that this node owned; `keep` says whether it stays open."""
        rows.epoch = 0
        self._rows[rows.number] = rows

    def keep(self, numbers: Set[int]) -> None:
        """Keep up with these partitions, and close the tables of others."""
        unneeded = [self._rows.pop(number) for number in list(self._rows) if number not in numbers]
        for number in sorted(numbers - self._rows.keys()):
            try:
                self._rows[number] = self._takeover.open_standby(number)
            except EarshotError as error:
                log.warning("standby.none", partition=number, error=str(error))
        self._follow()
        for rows in unneeded:
            rows.close()

    async def stop(self) -> None:
        """Close all tables."""
        rows, self._rows = self._rows, {}
        self._follow()
        await asyncio.sleep(0)
        for table in rows.values():
            table.close()

    def _follow(self) -> None:
        """Follow the changelogs of what is open; nothing else is applied to a table once this has returned."""
        follower = self._backend.follower
        if follower is None:
            return
        ranges = {TopicPartition(CHANGELOG, number): rows.applied.offset for number, rows in self._rows.items()}
        follower.follow(ranges, self._apply)

    def _apply(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        rows = self._rows.get(tp.partition)
        if rows is None:
            return
        if records[0].offset == 0 < rows.applied.offset:
            log.warning(
                "table.wiped", partition=tp.partition, reason="it holds more than its changelog: of another log"
            )
            rows = self._rows[tp.partition] = self._takeover.open_anew(rows)
        # A takeover that was broken off may have brought the table further than where following began. A table that
        # was made anew from the middle of the changelog would lack what came before, and nobody would know.
        records = [record for record in records if record.offset >= rows.applied.offset]
        if records:
            rows.apply(records)
