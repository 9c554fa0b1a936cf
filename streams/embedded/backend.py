"""The embedded log as the log that a node stands on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from streams.embedded.log import EmbeddedLog
from streams.embedded.maintenance import Maintenance
from streams.embedded.reader import EmbeddedReader
from streams.log import Floor
from topics.catalog import COMMANDS, JOB_COMMANDS, Topic


class EmbeddedBackend:
    """The embedded log of this process, with its topics and its maintenance."""

    broker = "embedded://"

    def __init__(self, log: EmbeddedLog, topics: Sequence[Topic], partitions: int, clock: Callable[[], float]) -> None:
        self.embedded_log: EmbeddedLog | None = log
        self.chunk_reader = EmbeddedReader(log, COMMANDS)
        self.part_reader = EmbeddedReader(log, JOB_COMMANDS)
        self._log = log
        self._clock = clock
        self._maintenance: asyncio.Task[None] | None = None
        for topic in topics:
            log.declare(topic.name, partitions, compact=topic.compact, retention_ms=topic.retention_ms)

    async def prepare(self, floor: Floor) -> None:
        """Start the maintenance of the log, which trims below `floor`."""
        maintenance = Maintenance(self._log, floor=floor)
        self._maintenance = asyncio.create_task(maintenance.run(), name="log-maintenance")

    def now_ms(self) -> int:
        """Return the clock that stamps records, in milliseconds."""
        return int(self._clock() * 1000)

    async def close(self) -> None:
        """Stop the maintenance and close the log."""
        if self._maintenance is not None:
            self._maintenance.cancel()
            await asyncio.gather(self._maintenance, return_exceptions=True)
        await self._log.close()
