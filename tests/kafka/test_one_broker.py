"""A broker with an authorizer that moves to another port, and strangers' transactions on it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer, admin

from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import Consumers
from streams.kafka.topics import TopicsDiffer, ensure
from tests.kafka.broker import launched_kafka
from tests.kafka_launcher.launcher import KafkaCluster
from tests.kafka_launcher.security import BrokerSecurity
from tests.ports import free_ports
from tests.process import ServiceProcess
from tests.waiting import wait_for
from topics.catalog import COMMANDS, TopicPartition, record_limit, topics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPICS = topics(3_600_000)
#: Its module exports nothing, as far as mypy can see.
LIBRARY: Any = admin
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The plain listener is the operator's.
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaConnection, KafkaConnection]]:
    """The connections of a user with ACLs and of the operator."""
    security = BrokerSecurity(tmp_path_factory.mktemp("security"), "earshot", "secret-word")
    with launched_kafka(settings=AUTHORIZER, security=security) as cluster:
        user = KafkaConnection(
            (cluster.secured_bootstrap,),
            "sasl_ssl",
            "SCRAM-SHA-512",
            security.user,
            security.password,
            ssl_ca_location=security.authority,
        )
        yield user, KafkaConnection((cluster.bootstrap,))


def allow(operator: KafkaConnection, *operations: str) -> None:
    client: Any = LIBRARY.AdminClient(operator.librdkafka())
    rules = [
        LIBRARY.AclBinding(
            LIBRARY.ResourceType.TOPIC,
            "earshot",
            LIBRARY.ResourcePatternType.PREFIXED,
            "User:earshot",
            "*",
            LIBRARY.AclOperation[operation],
            LIBRARY.AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for made in client.create_acls(rules).values():
        made.result()


def test_start_names_missing_rights(guarded: tuple[KafkaConnection, KafkaConnection]) -> None:
    user, operator = guarded
    asyncio.run(ensure(operator, TOPICS, 2))
    allow(operator, "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ")
    with pytest.raises(TopicsDiffer) as refused:
        wait_for(lambda: asyncio.run(ensure(user, TOPICS, 2)) and None, 10)
    for topic in TOPICS:
        assert f"{topic.name}: the user lacks the right to WRITE" in str(refused.value)
    allow(operator, "WRITE")

    def accepted() -> bool:
        try:
            return bool(asyncio.run(ensure(user, TOPICS, 2)))
        except TopicsDiffer:
            return False

    wait_for(accepted, 10)


async def test_open_transaction_of_a_stranger_hides_nothing(guarded: tuple[KafkaConnection, KafkaConnection]) -> None:
    _, operator = guarded
    await ensure(operator, TOPICS, 2)
    stranger: Any = Producer({**operator.librdkafka(), "transactional.id": "stranger"})
    ours: Any = Producer(operator.librdkafka())
    await asyncio.to_thread(stranger.init_transactions, 30)
    stranger.begin_transaction()
    for producer, value in (stranger, b"open"), (ours, b"ours"):
        producer.produce(COMMANDS, value, b"key", 1)
        assert await asyncio.to_thread(producer.flush, 30) == 0
    consumers, tp = Consumers(operator, record_limit(0)), TopicPartition(COMMANDS, 1)
    begin, end = (await consumers.bounds([tp]))[tp]
    assert (begin, end) == (0, 2)
    values = [record.value async for records in consumers.read(tp, begin, end) for record in records]
    assert values == [b"open", b"ours"]
    await asyncio.to_thread(consumers.close)
    await asyncio.to_thread(stranger.abort_transaction, 30)


def test_broker_is_found_again_at_another_port_of_the_list(tmp_path: Path) -> None:
    here, there = free_ports(2)
    settings: dict[str, str | int] = {
        "broker": f"kafka://127.0.0.1:{here},127.0.0.1:{there}",
        "partitions": 2,
        "kafka_session_seconds": 6,
        "model": "sed-mini",
        "workers": 1,
    }
    with KafkaCluster(tmp_path / "kafka", port=here) as kafka, ServiceProcess(tmp_path / "data", **settings) as node:
        kafka.kill()
        wait_for(lambda: httpx2.get(f"{node.url}/readyz").status_code == 503, 30)
        with KafkaCluster(tmp_path / "kafka", port=there):
            node.wait_ready(60)
            assert "node.failed" not in node.log.read_text()
