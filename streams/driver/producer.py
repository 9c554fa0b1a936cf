"""The Faust producer reduced to what is used: records go through a `LogWriter`, and a flush waits for all of them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from faust.transport.producer import Producer
from faust.types import TP

from streams.log import LogWriter


class RecordProducer(Producer):  # type: ignore[misc]
    """Sends through `writer`, which knows whether each record became durable."""

    writer: LogWriter

    async def send(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None, *args: Any, **kwargs: Any
    ) -> Awaitable[Any]:
        """Enqueue one record."""
        return self.writer.append(topic, self._partition(topic, partition), key, value, bounded=False)

    async def send_and_wait(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None, *args: Any, **kwargs: Any
    ) -> Any:
        """Enqueue one record and wait until it is durable."""
        return await self.writer.append(topic, self._partition(topic, partition), key, value, bounded=False)

    def send_soon(self, fut: Any) -> None:
        """Enqueue a record of Faust's own (a table write that bypasses `RowTable`)."""
        message = fut.message
        topic = message.channel.get_topic_name()
        self.writer.append_soon(topic, self._partition(topic, message.partition), message.key, message.value)

    async def flush(self) -> None:
        """Return once everything enqueued before is durable."""
        await self.writer.flush()

    def key_partition(self, topic: str, key: bytes) -> TP:
        """Refuse: every record of ours names its partition."""
        raise NotImplementedError(f"a record for {topic} does not name its partition")

    def _partition(self, topic: str, partition: int | None) -> int:
        if partition is None:
            raise NotImplementedError(f"a record for {topic} does not name its partition")
        return partition

    async def create_topic(self, topic: str, partitions: int, replication: int, **kwargs: Any) -> None:
        """Do nothing: all topics exist before Faust starts."""
