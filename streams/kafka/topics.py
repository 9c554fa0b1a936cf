"""Creates or verifies all topics of the catalogue on Kafka, before anything is read."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from streams.kafka.connection import KafkaConnection
from streams.kafka.refusal import refusal
from streams.kafka.topic_settings import alteration, longer_retention_ms, misfits, needed_settings
from streams.kafka.topic_state import TopicState, TopicStates
from topics.catalog import Topic
from topics.errors import ServiceError
from topics.ports.seen_log import SeenLog

log = structlog.get_logger(__name__)

VISIBLE_SECONDS: Final = 20.0
#: Copies of each topic that survive the loss of a broker while writes go on.
ENOUGH_COPIES: Final = 3
#: The page with what to do.
PAGE: Final = 'docs/kafka.md, "A log that is not the one of before"'


class TopicsDiffer(ServiceError):
    """The topics on the broker do not match; the message lists all differences and the commands to fix them."""


async def ensure(
    connection: KafkaConnection,
    topics: Sequence[Topic],
    partitions: int,
    replication: int | None = None,
    seen: SeenLog | None = None,
) -> dict[str, TopicState]:
    """Create the missing ones of `topics`, and verify the others; return all of them.

    Without a `replication`, topics have three copies, or as many as there are brokers. `seen` is what earlier starts
    have seen of the log.

    Raises:
        TopicsDiffer: a topic, its partition count or its settings do not match.
        ServiceError: the broker does not answer, or refuses.
    """
    topics = named(connection, topics)
    names = [topic.name for topic in topics]
    admin = AIOKafkaAdminClient(**connection.aiokafka(), request_timeout_ms=15_000)
    try:
        await admin.start()
        states = await asyncio.to_thread(TopicStates, connection)
        brokers = await asyncio.to_thread(states.brokers)
        present = set(await admin.list_topics())
        if seen is not None and (gone := sorted(seen.topics.keys() & (set(names) - present))):
            raise _differ([f"{name} was deleted, with all that was in it: see {PAGE}" for name in gone])
        missing = [topic for topic in topics if topic.name not in present]
        await _create(admin, missing, partitions, replication or min(ENOUGH_COPIES, brokers))
        await _count_partitions(admin, names)
    except KafkaError as error:
        raise ServiceError(await refusal(connection, error)) from error
    finally:
        await admin.close()
    found = await asyncio.to_thread(states.describe, names)
    settings = await asyncio.to_thread(states.settings, names)
    faults = [*differences(seen, found, partitions), *denied(found)]
    few = few_copies(found, replication or min(ENOUGH_COPIES, brokers))
    if faults := [*faults, *compare(connection, topics, found, settings), *(few if replication else ())]:
        raise _differ(faults)
    for topic in topics:
        if (kept := longer_retention_ms(topic, settings[topic.name])) is not None:
            # A shorter EARSHOT_AUDIO_RETENTION_SECONDS does not change existing topics.
            log.warning("topic.kept_longer", topic=topic.name, retention_ms=kept, asked_ms=topic.retention_ms)
    for line in few:
        log.warning("topic.few_copies", fault=line, brokers=brokers)
    return found


def named(connection: KafkaConnection, topics: Sequence[Topic]) -> list[Topic]:
    """Return topics with their names on the brokers."""
    return [msgspec.structs.replace(topic, name=connection.topic(topic.name)) for topic in topics]


def _differ(faults: Sequence[str]) -> TopicsDiffer:
    return TopicsDiffer("\n  ".join(["the topics on the broker do not fit:", *faults]))


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
        log.info("topic.created", topic=name, copies=replication)


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


async def examine_topics(
    connection: KafkaConnection,
    topics: Sequence[Topic],
    partitions: int,
    replication: int | None,
    seen: SeenLog | None,
) -> tuple[list[str], list[str]]:
    """Return the names of missing topics, and how those that exist do not fit; change nothing.

    Raises:
        Unavailable: the brokers do not answer.
    """
    topics = named(connection, topics)
    names = [topic.name for topic in topics]

    def asked() -> tuple[list[str], list[str]]:
        states = TopicStates(connection)
        found = states.describe(names)
        missing = [name for name in names if name not in found]
        gone = [] if seen is None else [f"{name} was deleted: see {PAGE}" for name in missing if name in seen.topics]
        return missing, gone + unfit(states, connection, topics, found, partitions, replication, seen)

    return await asyncio.to_thread(asked)


def unfit(
    states: TopicStates,
    connection: KafkaConnection,
    topics: Sequence[Topic],
    found: Mapping[str, TopicState],
    partitions: int,
    replication: int | None,
    seen: SeenLog | None,
) -> list[str]:
    """Return how topics do not keep what was promised; blocks."""
    settings = states.settings(list(found)) if found else {}
    there = [topic for topic in topics if topic.name in found]
    return [
        *differences(seen, found, partitions),
        *compare(connection, there, found, settings),
        *few_copies(found, replication or min(ENOUGH_COPIES, states.brokers())),
        *denied(found),
    ]


# --- comparisons ------------------------------------------------------------------------------------------------------


def differences(seen: SeenLog | None, states: Mapping[str, TopicState], partitions: int) -> list[str]:
    """Return how topics differ from those of before, and from the number of partitions that is used."""
    if seen is not None and seen.partitions != partitions:
        return [
            f"EARSHOT_PARTITIONS is {partitions}, and this service began with {seen.partitions}: set it to "
            f"{seen.partitions} again, or its sessions and jobs are not found: see {PAGE}"
        ]
    known = {} if seen is None else seen.topics
    if known and not known.keys() & states.keys():
        return [f"the topics of before are {', '.join(sorted(known))}: set EARSHOT_KAFKA_PREFIX as before: see {PAGE}"]
    lines = []
    for name, state in states.items():
        before, count = known.get(name), state.partitions
        if before is not None and before.id != state.id:
            lines.append(f"{name} is not the topic of before: it was deleted and made again ({before.id}, {state.id})")
        elif before is not None and before.partitions != count:
            lines.append(
                f"{name} has {count} partitions, and had {before.partitions}. Leave EARSHOT_PARTITIONS at "
                f"{partitions}: sessions and jobs are in the first {partitions}"
            )
        elif count < partitions or (seen is None and count != partitions):
            lines.append(
                f"{name} has {count} partitions, EARSHOT_PARTITIONS is {partitions}: both must be as at the first start"
            )
    return [f"{line}: see {PAGE}" for line in lines]


def compare(
    connection: KafkaConnection,
    topics: Sequence[Topic],
    states: Mapping[str, TopicState],
    settings: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Return lines with the settings of topics that must change, and the commands to change them."""
    lines = []
    for topic in topics:
        if wrong := misfits(topic, settings.get(topic.name, {}), states[topic.name].copies):
            lines.append(f"{topic.name} has {'; '.join(map(str, wrong))}")
            lines.append("  " + alteration(connection.addresses, topic.name, wrong))
    return lines


def few_copies(states: Mapping[str, TopicState], wanted: int) -> list[str]:
    """Return a line for each topic with fewer copies than wanted."""
    return [
        f"{name} has {state.copies} of {wanted} copies: the loss of one broker may lose or stop it. "
        "Add copies with kafka-reassign-partitions.sh"
        for name, state in states.items()
        if state.copies < wanted
    ]


def denied(states: Mapping[str, TopicState]) -> list[str]:
    """Return a line for each topic that this user may not use as the service must."""
    return [
        f"{name}: the user lacks the right to {' and '.join(state.denied)}: add it to the ACLs of the brokers"
        for name, state in states.items()
        if state.denied
    ]
