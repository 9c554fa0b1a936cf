"""Reads everything in a topic, with or without gaps, independent of the service's code."""

from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition


async def records(bootstrap: str, topic: str, partitions: int) -> list[ConsumerRecord[Any, Any]]:
    """Return every record of a topic, ordered within each partition."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        all_of_it = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(all_of_it)
        ends = await consumer.end_offsets(all_of_it)
        found = []
        while any([await consumer.position(one) < end for one, end in ends.items()]):
            for polled in (await consumer.getmany(timeout_ms=200)).values():
                found += polled
        return found
