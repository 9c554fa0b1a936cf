"""Reads everything in a topic, with or without gaps, and writes garbage, independent of the service's code."""

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition


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


async def spoil(bootstrap: str, topic: str, partition: int, count: int) -> None:
    """Write garbage to a partition, as a faulty tool might."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"\xff garbage %d" % number, b"key", partition)
