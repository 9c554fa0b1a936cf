"""Which log a node stands on: what has to be there before Faust starts, and what is closed after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from streams.embedded.log import EmbeddedLog
from streams.embedded.maintenance import Maintenance
from streams.embedded.reader import EmbeddedReader
from streams.kafka import topics as kafka_topics
from streams.kafka.reader import KafkaReader
from streams.log import RecordReader
from topics.catalog import COMMANDS, JOB_COMMANDS, Topic

#: The lowest offset of a partition that is still needed, None while that is not known.
Floor = Callable[[str, int], int | None]


class Backend(Protocol):
    """A log to stand on."""

    @property
    def broker(self) -> str:
        """The URL that Faust is given."""
        ...

    @property
    def embedded_log(self) -> EmbeddedLog | None:
        """The embedded log, None on Kafka."""
        ...

    @property
    def reader(self) -> RecordReader:
        """Reads audio of sessions again that is no longer in memory."""
        ...

    @property
    def part_reader(self) -> RecordReader:
        """Reads the parts of jobs."""
        ...

    async def prepare(self, floor: Floor) -> None:
        """Make or verify the topics."""
        ...

    def now_ms(self) -> int:
        """Return the time by which records are stamped, in milliseconds."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class EmbeddedBackend:
    """The embedded log in this process."""

    broker = "embedded://"

    def __init__(self, log: EmbeddedLog, topics: Sequence[Topic], partitions: int, clock: Callable[[], float]) -> None:
        self.embedded_log: EmbeddedLog | None = log
        self.reader = EmbeddedReader(log, COMMANDS)
        self.part_reader = EmbeddedReader(log, JOB_COMMANDS)
        self._log = log
        self._clock = clock
        self._keeper: asyncio.Task[None] | None = None
        for topic in topics:
            retention = topic.retention_ms
            log.declare(topic.name, partitions, compact=topic.compact, retention_ms=retention)

    async def prepare(self, floor: Floor) -> None:
        """Start the maintenance of the log."""
        keeper = Maintenance(self._log, floor=lambda tp: floor(tp.topic, tp.partition))
        self._keeper = asyncio.create_task(keeper.run(), name="log-maintenance")

    def now_ms(self) -> int:
        """Return the clock that stamps records."""
        return int(self._clock() * 1000)

    async def close(self) -> None:
        """Close the log."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._log.close()


class KafkaBackend:
    """A Kafka cluster."""

    embedded_log = None

    def __init__(
        self, bootstrap: Sequence[str], topics: Sequence[Topic], partitions: int, replication: int, record_limit: int
    ) -> None:
        self.broker = ";".join(f"kafka://{address}" for address in bootstrap)
        self.reader = KafkaReader(bootstrap, record_limit, COMMANDS)
        # Another one, since a live session must not wait until a whole recording is read.
        self.part_reader = KafkaReader(bootstrap, record_limit, JOB_COMMANDS)
        self._bootstrap = bootstrap
        self._topics = topics
        self._partitions = partitions
        self._replication = replication

    async def prepare(self, floor: Floor) -> None:
        """Make the topics, or refuse with the difference."""
        await kafka_topics.ensure(self._bootstrap, self._topics, self._partitions, self._replication)

    def now_ms(self) -> int:
        """Return this machine's clock, which stamps the records that this node produces."""
        return int(time.time() * 1000)

    async def close(self) -> None:
        """Close the consumers that read audio again."""
        await self.reader.stop()
        await self.part_reader.stop()
