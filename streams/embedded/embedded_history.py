"""Reading whole topics of the embedded log while the service is stopped."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Final

from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogError
from streams.log import PartitionRecord
from topics.catalog import TopicPartition

BATCH_RECORDS: Final = 256
BATCH_BYTES: Final = 8 * 1024 * 1024


class EmbeddedHistory:
    """The `LogHistory` of the embedded log in a directory. Loop only."""

    def __init__(self, directory: Path) -> None:
        """Open the log of a directory, without changing what is in it.

        Raises:
            LogLocked: the service runs.
            LogError: there is no log, or it cannot be read.
        """
        if not directory.is_dir():
            raise LogError(f"there is no log in {directory}")
        self._log = EmbeddedLog.open(directory)

    async def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition; none for a topic that was never made."""
        return {
            number: self._log.earliest(TopicPartition(topic, number))
            for number in range(self._log.topics().get(topic, 0))
        }

    async def records(self, topic: str) -> AsyncGenerator[PartitionRecord, None]:
        """Yield all records, each partition in order.

        Raises:
            Unavailable: the disk fails now.
            LogError: the log is damaged.
        """
        for number, offset in (await self.first_offsets(topic)).items():
            tp = TopicPartition(topic, number)
            while batch := self._log.read(tp, offset, BATCH_RECORDS, BATCH_BYTES):
                for record in batch:
                    yield PartitionRecord(number, *record[:4])
                offset = batch[-1].offset + 1

    async def close(self) -> None:
        await self._log.close()
