"""The embedded log as a node's backend."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.maintenance import Maintenance
from streams.log import Apply, LogUser, StoredRecord
from topics.catalog import FOLDED, Topic, TopicPartition

BATCH_RECORDS: Final = 2000
BATCH_BYTES: Final = 8 * 1024 * 1024


class EmbeddedBackend:
    """Backend for the node that has an embedded log to itself; runs the log's maintenance. Loop only."""

    exclusive = True

    def __init__(self, log: EmbeddedLog, topics: Sequence[Topic], partitions: int, clock: Callable[[], float]) -> None:
        self.name = log.store.name()
        self.writer = log
        self.follower = None
        self.removed = 0
        self.changed = None
        self._log = log
        self._clock = clock
        self._maintenance: Maintenance | None = None
        self._tasks: list[asyncio.Task[None]] = []
        for topic in topics:
            # Folded topics are trimmed by need only: records may wait for their analysis longer than the retention.
            retention_ms = None if topic.name in FOLDED else topic.retention_ms
            log.declare(topic.name, partitions, compact=topic.compact, retention_ms=retention_ms)

    async def start(self, user: LogUser) -> None:
        """Start deliveries and maintenance. A failure of maintenance fails the node, because the log cannot go on."""
        self._log.deliver(FOLDED, user.deliver)
        maintenance = self._maintenance = Maintenance(self._log, user.floor, user.needed)

        def end(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                user.fail(error)

        works = {
            "log-maintenance": maintenance.run(),
            "log-trimming": maintenance.trim(),
            "log-reading": maintenance.read_rest(),
        }
        for name, work in works.items():
            task = asyncio.create_task(work, name=name)
            task.add_done_callback(end)
            self._tasks.append(task)

    def note_end(self, tp: TopicPartition, end: int) -> bool:
        """Return True: no other process writes to this log."""
        return True

    def drop(self, reason: str) -> None:
        """Do nothing: no other node can take over queued records."""

    def fault(self, number: int) -> str | None:
        """Return None: a log that is not the one of before does not open."""
        return None

    def unfit(self) -> bool:
        return False

    def note_removed(self, tp: TopicPartition, count: int) -> None:
        """Do nothing: this log keeps records until they are folded."""

    async def erase(self) -> None:
        if self._maintenance is not None:
            await self._maintenance.erase()

    def refuses(self) -> str | None:
        return self._log.refusal

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def log_ms(self) -> int:
        return self.now_ms()

    def topic_name(self, topic: str) -> str:
        return topic

    async def bounds(self, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return {tp: (self._log.earliest(tp), self._log.end(tp)) for tp in tps}

    async def read(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[Sequence[StoredRecord], None]:
        while start < stop and (records := self._log.read(tp, start, BATCH_RECORDS, BATCH_BYTES)):
            start = records[-1].offset + 1
            yield [record for record in records if record.offset < stop]

    async def values(self, tp: TopicPartition, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        for offset in offsets:
            record = await asyncio.to_thread(self._log.get, tp, offset)
            yield None if record is None else record.value

    async def stretch(self, tp: TopicPartition, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        """Return the existing records at `offsets`; separate lookups cost no more here than reading ahead."""
        found = await asyncio.to_thread(lambda: [self._log.get(tp, offset) for offset in offsets])
        return [record for record in found if record is not None]

    async def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]], apply: Apply) -> None:
        for tp, (start, stop) in ranges.items():
            async with aclosing(self.read(tp, start, stop)) as reading:
                async for records in reading:
                    if records:
                        await asyncio.to_thread(apply, tp, records)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._log.close()
