"""What a node on Kafka reads of its topics."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from streams.kafka.connection import KafkaConnection
from streams.kafka.kafka_backend import KafkaBackend
from streams.log import StoredRecord
from topics.catalog import COMMANDS, TopicPartition


@pytest.mark.parametrize(("first", "begin", "removed"), [(4, 4, 0), (9, 4, 0), (9, 9, 5), (9, 7, 3)])
async def test_records_removed_before_they_are_read_are_counted(first: int, begin: int, removed: int) -> None:
    """Other gaps are marks of a stranger's transaction."""
    backend = KafkaBackend(KafkaConnection(("a:1",)), (), 4, 1, 2**20, 2**20)
    tp = TopicPartition(COMMANDS, 0)

    async def read(*asked: Any) -> AsyncGenerator[list[StoredRecord], None]:
        assert asked == (tp, 4, 12)
        for offset in range(first, 12):
            yield [StoredRecord(offset, 0, b"k", b"v")]

    async def bounds(tps: Any) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (begin, 12)}

    consumers: Any = backend._consumers
    consumers.read, consumers.bounds = read, bounds
    assert [record.offset async for records in backend.read(tp, 4, 12) for record in records] == [*range(first, 12)]
    assert backend.removed == removed
