"""Reads single records of the embedded log, for audio that is no longer in memory."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from streams.embedded.embedded_log import EmbeddedLog
from streams.log import StoredRecord
from topics.catalog import TopicPartition


class EmbeddedReader:
    """Implements `RecordReader` for one topic of the embedded log. Loop only."""

    def __init__(self, log: EmbeddedLog, topic: str) -> None:
        self._log = log
        self._topic = topic

    async def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        tp = TopicPartition(self._topic, partition)
        for offset in offsets:
            record = await asyncio.to_thread(self._log.get, tp, offset)
            yield None if record is None else record.value

    async def stretch(self, partition: int, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        """Return the existing records at `offsets`; separate lookups cost no more here than reading ahead."""
        tp = TopicPartition(self._topic, partition)
        found = await asyncio.to_thread(lambda: [self._log.get(tp, offset) for offset in offsets])
        return [record for record in found if record is not None]
