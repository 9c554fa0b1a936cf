"""The log that a node stands on: what has to be there before Faust starts, and what is closed after it."""

from __future__ import annotations

from typing import Protocol

from streams.embedded.log import EmbeddedLog
from streams.log import Floor, RecordReader


class LogBackend(Protocol):
    """The embedded log or Kafka; `EmbeddedBackend` and `KafkaBackend` implement it."""

    @property
    def broker(self) -> str:
        """The URL that Faust connects to."""
        ...

    @property
    def embedded_log(self) -> EmbeddedLog | None:
        """The embedded log, None on Kafka."""
        ...

    @property
    def chunk_reader(self) -> RecordReader:
        """Reads chunks of sessions again that are no longer in memory."""
        ...

    @property
    def part_reader(self) -> RecordReader:
        """Reads the parts of jobs."""
        ...

    async def prepare(self, floor: Floor) -> None:
        """Make or verify the topics.

        Raises:
            ServiceError: the broker does not answer, or its topics do not fit.
        """
        ...

    def now_ms(self) -> int:
        """Return the time by which records are stamped, in milliseconds."""
        ...

    async def close(self) -> None:
        """Give back what `prepare` and the readers hold."""
        ...
