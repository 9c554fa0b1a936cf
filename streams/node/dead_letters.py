"""Records that were set aside: one at a time, whole, and back to their topic."""

import asyncio
from contextlib import aclosing
from typing import NamedTuple

from streams.log import StoredRecord
from streams.node.node import Node
from topics import record_codec
from topics.catalog import PARKED, TopicPartition
from topics.errors import NotFound, NotOwned, RecordError, Unavailable
from topics.ports.nodes import DeadLetter
from topics.records import Parked
from topics.times import utc_time


class _Found(NamedTuple):
    record: StoredRecord
    parked: Parked


class DeadLetters:
    """Finds dead letters of a node's log by the place of their records, and puts them back. Loop only.

    Methods take the topic's name on the log, the partition and the offset of the record that was set aside.

    Raises:
        NotFound: there is no such dead letter, or none any more.
        Unavailable: the log does not answer.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def read(self, topic: str, partition: int, offset: int) -> DeadLetter:
        record, parked = await self._find(topic, partition, offset)
        at, key = utc_time(record.timestamp), parked.key.decode(errors="backslashreplace")
        return DeadLetter(topic, partition, offset, at, parked.cause, key, parked.value)

    async def put_back(self, topic: str, partition: int, offset: int) -> int:
        """Append the record to its topic again; return its new offset. The owner of the partition must be here."""
        _, parked = await self._find(topic, partition, offset)
        owners = self._node.owners
        if partition not in owners.here:
            raise NotOwned(f"partition {partition} is another node's")
        if not owners.may_append():
            raise Unavailable("this node has no contact with the others, and may have lost its partitions")
        ack = await self._node.backend.writer.append(parked.topic, partition, parked.key or None, parked.value)
        return ack.offset

    async def _find(self, topic: str, partition: int, offset: int) -> _Found:
        backend = self._node.backend
        aside = next((PARKED[name] for name in PARKED if backend.topic_name(name) == topic), None)
        if aside is not None and 0 <= partition < self._node.owners.partitions:
            tp = TopicPartition(aside, partition)
            async with aclosing(backend.read(tp, *(await backend.bounds([tp]))[tp])) as reading:
                async for records in reading:
                    for record in records:
                        try:
                            parked = record_codec.decode_parked(record.value)
                        except RecordError:
                            continue
                        if parked.offset == offset:
                            return _Found(record, parked)
                    await asyncio.sleep(0)  # Each record may hold a chunk.
        raise NotFound(f"there is no dead letter {topic}/{partition}/{offset}")
