"""Reads single records of Kafka, for audio that is no longer in memory."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from streams.kafka.consumers import Consumers
from streams.log import StoredRecord
from topics.catalog import TopicPartition

#: The largest gap of records that is cheaper to read than to seek over.
NEAR: Final = 64


class KafkaReader:
    """Implements `RecordReader` for one topic on Kafka; allows concurrent reads. Loop only."""

    def __init__(self, consumers: Consumers, topic: str) -> None:
        self._consumers = consumers
        self._topic = topic

    async def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        tp = TopicPartition(self._topic, partition)
        for run in _runs(offsets):
            missing = iter(run)
            offset: int | None = next(missing)
            async with aclosing(self._consumers.read(tp, run[0], run[-1] + 1)) as batches:
                async for records in batches:
                    for record in records:
                        while offset is not None and offset < record.offset:
                            yield None
                            offset = next(missing, None)
                        if offset == record.offset:
                            yield record.value
                            offset = next(missing, None)
            while offset is not None:
                yield None
                offset = next(missing, None)

    async def stretch(self, partition: int, offsets: Sequence[int], size: int) -> Sequence[StoredRecord]:
        return await self._consumers.stretch(TopicPartition(self._topic, partition), offsets[0], size)


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Split offsets into runs to read without a seek."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > NEAR:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run
