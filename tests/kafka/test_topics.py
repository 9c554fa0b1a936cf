"""The topics of the service on a real Kafka: created once, then verified, and refused with the difference."""

import asyncio
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import msgspec
import pytest
from aiokafka.admin import NewTopic

from streams.kafka import topics as kafka_topics
from tests.kafka.broker import Broker, admin_client, kafka_broker
from tests.kafka_launcher import jars
from topics import catalog

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A Kafka with the topics of a deployment with four partitions."""
    with kafka_broker() as broker:
        ensure(broker, 4)
        yield broker


def ensure(broker: Broker, partitions: int, retention_ms: int = DAY_MS, chunk_limit: int = 0) -> None:
    """Create or verify the topics as a starting node does."""
    topics = catalog.topics(retention_ms, chunk_limit)
    asyncio.run(kafka_topics.ensure(broker.connection, topics, partitions, 1))


def test_matching_topics_are_left_unchanged(broker: Broker) -> None:
    """The same deployment again, and one that needs less."""
    ensure(broker, 4)
    ensure(broker, 4, retention_ms=DAY_MS // 2)


def test_different_partition_count_is_rejected(broker: Broker) -> None:
    """The count is fixed, because sessions would change their partition."""
    with pytest.raises(
        kafka_topics.TopicsDiffer, match=rf"{broker.connection.topic(catalog.COMMANDS)} has 4 partitions, .* is 8"
    ):
        ensure(broker, 8)


def test_examination_finds_what_a_start_refuses_and_makes_nothing(broker: Broker) -> None:
    def examined(of: Broker, partitions: int = 4) -> tuple[list[str], list[str]]:
        topics = catalog.topics(DAY_MS)
        return asyncio.run(kafka_topics.examine_topics(of.connection, topics, partitions, 1, None))

    assert examined(broker) == ([], [])
    missing, faults = examined(broker, 8)
    assert (missing, len(faults)) == ([], 7)
    assert "has 4 partitions, EARSHOT_PARTITIONS is 8" in faults[0]
    fresh = msgspec.structs.replace(broker, prefix=f"{broker.prefix}-other")
    for _ in range(2):
        missing, faults = examined(fresh)
        assert (len(missing), faults) == (7, [])


def test_short_retention_and_small_records_are_rejected(broker: Broker) -> None:
    """The error names both differences."""
    with pytest.raises(kafka_topics.TopicsDiffer) as refused:
        ensure(broker, 4, retention_ms=2 * DAY_MS, chunk_limit=4 * 1024 * 1024)
    names = map(broker.connection.topic, (catalog.COMMANDS, catalog.CHANGELOG))
    (commands,), (changelog,) = (
        [line for line in lines(refused.value) if line.startswith(f"{name} has ")] for name in names
    )
    assert f"retention.ms={DAY_MS}, needed is {2 * DAY_MS} or more" in commands
    assert " has max.message.bytes=" in changelog


@pytest.mark.slow
def test_suggested_commands_repair_topics(broker: Broker) -> None:
    """The suggested commands repair topics created by hand with a broker's defaults."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("no java or mvn to run Kafka's own tool with")
    names = {broker.connection.topic(name) for name in (catalog.COMMANDS, catalog.CHANGELOG)}
    asyncio.run(make_by_hand(broker, sorted(names)))
    with pytest.raises(kafka_topics.TopicsDiffer) as refused:
        ensure(broker, 4)
    commands = [line for line in lines(refused.value) if line.startswith("kafka-configs.sh ")]
    assert {command.split()[command.split().index("--entity-name") + 1] for command in commands} == names
    for command in commands:
        run_tool(command)
    ensure(broker, 4)


def lines(refusal: Exception) -> list[str]:
    return [line.strip() for line in str(refusal).splitlines()]


async def make_by_hand(broker: Broker, names: list[str]) -> None:
    async with admin_client(broker.bootstrap) as admin:
        await admin.delete_topics(names)
        while set(names) & set(await admin.list_topics()):  # noqa: ASYNC110 (the broker has no event for it)
            await asyncio.sleep(0.1)
        await admin.create_topics([NewTopic(name, 4, 1) for name in names])


def run_tool(command: str) -> None:
    """Run a line of `kafka-configs.sh` with the launcher's jars, which include no scripts."""
    arguments = shlex.split(command)[1:]
    subprocess.run(
        ["java", "-cp", f"{jars.jars()}/*", "org.apache.kafka.tools.ConfigCommand", *arguments], check=True, timeout=120
    )
