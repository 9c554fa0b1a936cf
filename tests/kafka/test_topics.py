"""The topics of the service on a real Kafka: made once, verified after that, refused with the difference."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from streams.kafka import topics as kafka_topics
from tests.kafka.broker import Broker, kafka_broker
from topics import catalog
from topics.errors import ServiceError

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A Kafka that has the topics of a deployment with four partitions."""
    with kafka_broker() as broker:
        ensure(broker, 4)
        yield broker


def ensure(broker: Broker, partitions: int, retention_ms: int = DAY_MS, chunk_limit: int = 0) -> None:
    """Make or verify the topics as a starting node does."""
    topics = catalog.topics(retention_ms, chunk_limit)
    asyncio.run(kafka_topics.ensure([broker.bootstrap], topics, partitions, 1))


def test_topics_that_fit_are_left_alone(broker: Broker) -> None:
    """The same deployment again, and one that needs less."""
    ensure(broker, 4)
    ensure(broker, 4, retention_ms=DAY_MS // 2)


def test_another_partition_count_is_refused(broker: Broker) -> None:
    """It is fixed once made: sessions would change their partition."""
    with pytest.raises(kafka_topics.TopicsDiffer, match=rf"{catalog.COMMANDS} has 4 partitions, .* is 8"):
        ensure(broker, 8)


def test_a_shorter_retention_and_smaller_records_are_refused(broker: Broker) -> None:
    """Both differences are named."""
    with pytest.raises(kafka_topics.TopicsDiffer) as refused:
        ensure(broker, 4, retention_ms=2 * DAY_MS, chunk_limit=4 * 1024 * 1024)
    assert f"{catalog.COMMANDS} has retention.ms={DAY_MS}, needed is {2 * DAY_MS}" in str(refused.value)
    assert f"{catalog.CHANGELOG} has max.message.bytes=" in str(refused.value)


def test_a_broker_that_is_not_there_is_named() -> None:
    """One line that says where nobody answered."""
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1"):
        asyncio.run(kafka_topics.ensure(["127.0.0.1:1"], catalog.topics(DAY_MS), 4, 1))
