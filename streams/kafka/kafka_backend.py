"""Kafka as a node's backend."""

import asyncio
import time
from collections.abc import Sequence

from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import ChangelogTail, Consumers
from streams.kafka.kafka_writer import KafkaWriter
from streams.kafka.topics import ensure
from streams.log import LogUser
from topics.catalog import Topic


class KafkaBackend:
    """Backend for a node on a Kafka cluster; `Membership` assigns the partitions. Loop only."""

    name = b""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Sequence[Topic],
        partitions: int,
        replication: int,
        record_limit: int,
        queue_bytes: int,
    ) -> None:
        self.writer = KafkaWriter(connection, queue_bytes, record_limit)
        self._consumers = Consumers(connection, record_limit)
        self.follower = ChangelogTail(self._consumers)
        self.bounds, self.read, self.replay = self._consumers.bounds, self._consumers.read, self._consumers.replay
        self.values, self.stretch = self._consumers.values, self._consumers.stretch
        self.note_end, self.drop, self.topic_name = self.writer.note_end, self.writer.drop, connection.topic
        self._connection = connection
        self._topics = topics
        self._partitions = partitions
        self._replication = replication

    async def start(self, user: LogUser) -> None:
        """Create missing topics and verify the others; Kafka trims them by retention."""
        await ensure(self._connection, self._topics, self._partitions, self._replication)
        self.writer.user = user

    def refuses(self) -> str | None:
        """Return None: records that Kafka does not accept now wait or fail by themselves."""
        return None

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    async def close(self) -> None:
        await self.writer.close()
        await asyncio.to_thread(self.follower.close)
        await asyncio.to_thread(self._consumers.close)
