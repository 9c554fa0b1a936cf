"""Kafka as a node's backend."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import structlog

from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import ChangelogTail, Consumers
from streams.kafka.kafka_writer import KafkaWriter
from streams.kafka.log_watch import LogWatch
from streams.kafka.topics import ensure, named
from streams.log import Apply, LogUser, StoredRecord
from topics.catalog import CHANGELOG, FOLDED, Topic, TopicPartition
from topics.ports.seen_log import LogMemory

log = structlog.get_logger(__name__)


class KafkaBackend:
    """Backend for a node on a Kafka cluster; `Membership` assigns the partitions. Loop only."""

    exclusive = False

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Sequence[Topic],
        partitions: int,
        replication: int | None,
        record_limit: int,
        queue_bytes: int,
        memory: LogMemory | None = None,
    ) -> None:
        """Prepare to start; without a `memory`, the log is not compared with the one of before."""
        #: The id of the changelog's topic, once it is known.
        self.name = b""
        self.writer = KafkaWriter(connection, queue_bytes, record_limit)
        self._consumers = Consumers(connection, record_limit)
        self.follower = ChangelogTail(self._consumers)
        self.removed = 0
        self._connection = connection
        self._topics = topics
        self._partitions = partitions
        self._replication = replication
        self._memory = memory
        self._watch: LogWatch | None = None

    async def start(self, user: LogUser) -> None:
        """Create missing topics and verify the others; Kafka trims them by retention."""
        seen = None if self._memory is None else await self._memory.seen()
        states = await ensure(self._connection, self._topics, self._partitions, self._replication, seen)
        self.writer.user = user
        if self._memory is not None:
            self.name = states[self._connection.topic(CHANGELOG)].id.encode()
            self._watch = LogWatch(
                self._connection,
                named(self._connection, self._topics),
                self._partitions,
                self._replication,
                self._consumers.bounds,
                self._memory,
            )
            self.writer.note_loss = self._watch.note_loss
            await self._watch.start(user, states)

    def topic_name(self, topic: str) -> str:
        return self._connection.topic(topic)

    def note_end(self, tp: TopicPartition, end: int) -> bool:
        return self.writer.note_end(tp, end)

    def drop(self, reason: str) -> None:
        self.writer.drop(reason)

    async def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        await self._consumers.replay(ranges, apply)

    def values(self, tp: TopicPartition, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        return self._consumers.values(tp, offsets)

    async def stretch(self, tp: TopicPartition, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        return await self._consumers.stretch(tp, offsets, size)

    async def bounds(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return await (self._consumers if self._watch is None else self._watch).bounds(tps)

    async def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[list[StoredRecord], None]:
        first = True
        async with aclosing(self._consumers.read(tp, start, stop)) as reading:
            async for records in reading:
                if first and tp.topic in FOLDED and records[0].offset > start:
                    # The gap may also have had marks of a stranger's transaction.
                    begin = (await self.bounds([tp]))[tp][0]
                    self.note_removed(tp, min(begin, stop) - start)
                first = False
                yield records

    def note_removed(self, tp: TopicPartition, count: int) -> None:
        if count > 0:
            self.removed += count
            log.error("records.removed", topic=self.topic_name(tp.topic), partition=tp.partition, count=count)

    @property
    def changed(self) -> str | None:
        return None if self._watch is None else self._watch.changed

    def fault(self, number: int) -> str | None:
        return None if self._watch is None else self._watch.fault(number)

    def unfit(self) -> bool:
        """Return whether topics do not keep what was promised."""
        return self._watch is not None and bool(self._watch.unfit)

    async def erase(self) -> None:
        """Do nothing: the log is on the brokers."""

    def refuses(self) -> str | None:
        """Return None: records that Kafka does not accept now wait or fail by themselves."""
        return None

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def log_ms(self) -> int:
        """Return the brokers' time, which stamps records; this node's clock may be hours off."""
        return self.writer.log_ms()

    async def close(self) -> None:
        if self._watch is not None:
            await self._watch.stop()
        await self.writer.close()
        await asyncio.to_thread(self.follower.close)
        await asyncio.to_thread(self._consumers.close)
