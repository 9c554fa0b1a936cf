"""Creates or verifies all topics of the catalogue on Kafka, before anything is read."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from streams.kafka.connection import KafkaConnection
from streams.kafka.refusal import refusal
from streams.kafka.topic_settings import alteration, longer_retention_ms, misfits, needed_settings
from topics.catalog import Topic
from topics.errors import ServiceError

log = structlog.get_logger(__name__)

VISIBLE_SECONDS: Final = 20.0


class TopicsDiffer(ServiceError):
    """The topics on the broker do not match; the message lists all differences and the commands to fix them."""


async def ensure(connection: KafkaConnection, topics: Sequence[Topic], partitions: int, replication: int) -> None:
    """Create the missing ones of `topics`, and verify the others.

    Raises:
        TopicsDiffer: the partition count or settings of a topic do not match.
        ServiceError: the broker does not answer, or refuses.
    """
    topics = [msgspec.structs.replace(topic, name=connection.topic(topic.name)) for topic in topics]
    admin = AIOKafkaAdminClient(**connection.aiokafka(), request_timeout_ms=15_000)
    try:
        await admin.start()
        present = set(await admin.list_topics())
        missing = [topic for topic in topics if topic.name not in present]
        await _create(admin, missing, partitions, replication)
        counts = await _count_partitions(admin, [topic.name for topic in topics])
        faults = await _compare(admin, connection, topics, counts, partitions, replication)
    except KafkaError as error:
        raise ServiceError(await refusal(connection, error)) from error
    finally:
        await admin.close()
    if faults:
        raise TopicsDiffer("\n  ".join(["the topics on the broker do not fit:", *faults]))


async def _create(admin: Any, topics: Sequence[Topic], partitions: int, replication: int) -> None:
    if not topics:
        return
    requests = [
        NewTopic(topic.name, partitions, replication, topic_configs=needed_settings(topic, replication))
        for topic in topics
    ]
    response = await admin.create_topics(requests)
    for name, code, *reason in response.topic_errors:
        if code not in (0, TopicAlreadyExistsError.errno):
            raise ServiceError(f"Kafka refuses to make topic {name}: {for_code(code).__name__} {reason}")
        log.info("topic.created", topic=name)


async def _count_partitions(admin: Any, names: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions of each topic, once the broker knows them.

    A busy broker lists a new topic before it knows the partitions.

    Raises:
        ServiceError: it does not know them in time.
    """
    try:
        async with asyncio.timeout(VISIBLE_SECONDS):
            while True:
                if set(names) <= set(await admin.list_topics()):
                    counts = {entry["topic"]: len(entry["partitions"]) for entry in await admin.describe_topics(names)}
                    if all(counts.get(name) for name in names):
                        return counts
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise ServiceError(f"Kafka does not show all topics within {VISIBLE_SECONDS:g} s") from error


async def _compare(
    admin: Any,
    connection: KafkaConnection,
    topics: Sequence[Topic],
    counts: Mapping[str, int],
    partitions: int,
    replication: int,
) -> list[str]:
    """Return lines that list the faults of topics, and the commands to correct them."""
    settings = await _settings(admin, [topic.name for topic in topics])
    lines = []
    for topic in topics:
        if (count := counts[topic.name]) != partitions:
            lines.append(f"{topic.name} has {count} partitions, EARSHOT_PARTITIONS is {partitions}")
        actual = settings.get(topic.name, {})
        if (kept := longer_retention_ms(topic, actual)) is not None:
            # A shorter EARSHOT_AUDIO_RETENTION_SECONDS does not change existing topics.
            log.warning("topic.kept_longer", topic=topic.name, retention_ms=kept, asked_ms=topic.retention_ms)
        if wrong := misfits(topic, actual, replication):
            lines.append(f"{topic.name} has {'; '.join(map(str, wrong))}")
            lines.append("  " + alteration(connection.addresses, topic.name, wrong))
    return lines


async def _settings(admin: Any, names: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    settings = {}
    for response in await admin.describe_configs(resources):
        for code, _message, _kind, name, entries in response.resources:
            if code:
                log.warning("topic.not_compared", topic=name, error=for_code(code).__name__)
            settings[name] = {entry[0]: entry[1] for entry in entries}
    return settings
