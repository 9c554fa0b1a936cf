"""Topics on Kafka: made or verified through the admin client before Faust starts.

Faust makes its own changelogs only, and a source topic that does not exist is logged for ever as "not found in
cluster metadata". So everything in the catalogue is made here, or compared with what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from topics.catalog import Topic
from topics.errors import ServiceError

log = structlog.get_logger(__name__)

VISIBLE_SECONDS: Final = 20.0


class TopicsDiffer(ServiceError):
    """The topics on the broker do not fit; the message lists every difference."""


def configuration(topic: Topic, replication: int = 1) -> dict[str, str]:
    """Return the settings that a topic needs on the broker, with `replication` copies of each partition."""
    settings = {
        "cleanup.policy": "compact" if topic.compact else "delete",
        "max.message.bytes": str(topic.max_bytes),
    }
    if topic.retention_ms is not None:
        settings["retention.ms"] = str(topic.retention_ms)
    if replication > 2:
        # An answer means two copies at least; with two copies in all, one that is away would stop everything.
        settings["min.insync.replicas"] = "2"
    return settings


async def ensure(bootstrap: Sequence[str], topics: Sequence[Topic], partitions: int, replication: int) -> None:
    """Make the topics that are missing and compare the others.

    Raises:
        TopicsDiffer: partition count, cleanup, retention or message size of a topic do not fit.
        ServiceError: the broker does not answer or refuses.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=",".join(bootstrap), request_timeout_ms=15_000)
    try:
        await admin.start()
        present = set(await admin.list_topics())
        missing = [topic for topic in topics if topic.name not in present]
        await _create(admin, missing, partitions, replication)
        await _wait_until_visible(admin, {topic.name for topic in topics})
        differences = await _differences(admin, topics, partitions, replication)
    except KafkaError as error:
        raise ServiceError(f"Kafka at {', '.join(bootstrap)}: {error!r}") from error
    finally:
        await admin.close()
    if differences:
        raise TopicsDiffer("the topics on the broker do not fit: " + "; ".join(differences))


async def _create(admin: Any, topics: Sequence[Topic], partitions: int, replication: int) -> None:
    if not topics:
        return
    requests = [
        NewTopic(topic.name, partitions, replication, topic_configs=configuration(topic, replication))
        for topic in topics
    ]
    response = await admin.create_topics(requests)
    for name, code, *reason in response.topic_errors:
        if code not in (0, TopicAlreadyExistsError.errno):
            raise ServiceError(f"Kafka refuses to make topic {name}: {for_code(code).__name__} {reason}")
        log.info("topic.created", topic=name, partitions=partitions)


async def _wait_until_visible(admin: Any, names: set[str]) -> None:
    async with asyncio.timeout(VISIBLE_SECONDS):
        while not names <= set(await admin.list_topics()):  # noqa: ASYNC110 (the broker has no event for it)
            await asyncio.sleep(0.1)


async def _differences(admin: Any, topics: Sequence[Topic], partitions: int, replication: int) -> list[str]:
    names = [topic.name for topic in topics]
    counts = {entry["topic"]: len(entry["partitions"]) for entry in await admin.describe_topics(names)}
    settings = await _settings(admin, names)
    differences = []
    for topic in topics:
        if counts[topic.name] != partitions:
            differences.append(f"{topic.name} has {counts[topic.name]} partitions, EARSHOT_PARTITIONS is {partitions}")
        differences.extend(_differing_settings(topic, settings.get(topic.name, {}), replication))
    return differences


def _differing_settings(topic: Topic, actual: Mapping[str, str], replication: int = 1) -> list[str]:
    """Return a sentence for each setting that is not enough: another cleanup, shorter retention, smaller messages."""
    differences = []
    for name, needed in configuration(topic, replication).items():
        value = actual.get(name)
        if value is None or value == needed:
            continue
        larger = name != "cleanup.policy" and (value == "-1" or int(value) >= int(needed))
        if not larger:
            differences.append(f"{topic.name} has {name}={value}, needed is {needed}")
    return differences


async def _settings(admin: Any, names: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    settings = {}
    for response in await admin.describe_configs(resources):
        for _code, _message, _kind, name, entries in response.resources:
            settings[name] = {entry[0]: entry[1] for entry in entries}
    return settings
