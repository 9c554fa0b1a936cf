"""Kafka as the log that a node stands on."""

from __future__ import annotations

import time
from collections.abc import Sequence

from streams.kafka.reader import KafkaReader
from streams.kafka.topics import ensure
from streams.log import Floor
from topics.catalog import COMMANDS, JOB_COMMANDS, Topic


class KafkaBackend:
    """A Kafka cluster."""

    embedded_log = None

    def __init__(
        self, bootstrap: Sequence[str], topics: Sequence[Topic], partitions: int, replication: int, record_limit: int
    ) -> None:
        self.broker = ";".join(f"kafka://{address}" for address in bootstrap)
        self.chunk_reader = KafkaReader(bootstrap, record_limit, COMMANDS)
        # A second reader, since a live session must not wait until a whole recording is read.
        self.part_reader = KafkaReader(bootstrap, record_limit, JOB_COMMANDS)
        self._bootstrap = bootstrap
        self._topics = topics
        self._partitions = partitions
        self._replication = replication

    async def prepare(self, floor: Floor) -> None:
        """Make the topics that are missing and compare the others; Kafka trims them by retention, without `floor`.

        Raises:
            TopicsDiffer: a topic does not fit.
            ServiceError: the broker does not answer or refuses.
        """
        await ensure(self._bootstrap, self._topics, self._partitions, self._replication)

    def now_ms(self) -> int:
        """Return this machine's clock, which stamps the records that this node produces, in milliseconds."""
        return int(time.time() * 1000)

    async def close(self) -> None:
        """Close the consumers that read audio again."""
        await self.chunk_reader.stop()
        await self.part_reader.stop()
