"""Brokers with TLS, passwords and an authorizer: who has all that it takes is served, others get the reason."""

import asyncio
import re
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer, admin

from streams.kafka.connection import KafkaConnection
from streams.kafka.consumers import Consumers
from streams.kafka.credentials import TokenClient
from streams.kafka.kafka_history import kafka_history
from streams.kafka.topics import TopicsDiffer, ensure
from tests.kafka.broker import launched_kafka
from tests.kafka_launcher.security import MECHANISMS, BrokerSecurity
from tests.process import ServiceProcess
from tests.recovery.load import Client
from tests.recovery.truth import stream_and_compare
from tests.unit.streams.kafka.test_tokens import Endpoint
from tests.waiting import turn, until, wait_for
from topics import catalog
from topics.errors import ServiceError, Unavailable

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

T = TypeVar("T")

#: Its module exports nothing, as far as mypy can see.
LIBRARY: Any = admin
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # The plain listener is the operator's.
    "super.users": "User:ANONYMOUS",
}
PARTITIONS = 2
LIMIT = catalog.record_limit(0)
TOPICS = catalog.topics(3_600_000)
STRANGER = Path(__file__).parents[1] / "unit" / "streams" / "kafka" / "authority.pem"


@pytest.fixture(scope="module")
def connections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaConnection, KafkaConnection]]:
    """The connections of a user, who may do what no rule is about, and of the operator."""
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


@pytest.fixture
def secured(connections: tuple[KafkaConnection, KafkaConnection]) -> KafkaConnection:
    return connections[0]


@pytest.fixture
def settings(secured: KafkaConnection) -> dict[str, str]:
    """Settings of a service that the brokers accept, as an operator writes them."""
    return {
        "broker": f"kafka://{secured.bootstrap[0]}",
        "kafka_prefix": "service",
        "partitions": str(PARTITIONS),
        "kafka_security_protocol": "sasl_ssl",
        "kafka_sasl_mechanism": "SCRAM-SHA-512",
        "kafka_sasl_username": str(secured.sasl_username),
        "kafka_sasl_password": str(secured.sasl_password),
        "kafka_ssl_ca_location": str(secured.ssl_ca_location),
    }


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and let connections close, which aiokafka does not wait for."""

    async def scene() -> T:
        watched = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
        before = len(watched)
        try:
            return await work
        finally:
            await until(lambda: len(watched) <= before)
            await turn()

    return asyncio.run(scene())


async def topics_made(connection: KafkaConnection) -> None:
    await ensure(connection, TOPICS, PARTITIONS, 1)


async def read(connection: KafkaConnection) -> list[bytes | None]:
    async with kafka_history(connection, PARTITIONS, LIMIT) as history:
        return [record.value async for record in history.records(catalog.COMMANDS)]


def test_topics_are_created_and_history_is_read(secured: KafkaConnection) -> None:
    async def scene() -> list[bytes | None]:
        await topics_made(secured)
        async with AIOKafkaProducer(**secured.aiokafka(), acks="all") as producer:
            await producer.send_and_wait(catalog.COMMANDS, b"one", b"key", 0)
        return await read(secured)

    assert run(scene()) == [b"one"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_libraries_authenticate_with_every_mechanism(secured: KafkaConnection, mechanism: str) -> None:
    connection = msgspec.structs.replace(secured, sasl_mechanism=mechanism)
    run(topics_made(connection))
    described = LIBRARY.AdminClient({**connection.librdkafka(), "log_level": 0}).list_topics(timeout=60)
    assert {topic.name for topic in TOPICS} <= set(described.topics)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[tuple[Endpoint, TokenClient]]:
    endpoint = Endpoint()
    with endpoint.running() as client:
        yield endpoint, client


@pytest.fixture
def bearer(secured: KafkaConnection, endpoint: tuple[Endpoint, TokenClient]) -> KafkaConnection:
    user = {"sasl_username": None, "sasl_password": None}
    return msgspec.structs.replace(secured, sasl_mechanism="OAUTHBEARER", tokens=endpoint[1], **user)


def test_both_libraries_authenticate_with_tokens(bearer: KafkaConnection) -> None:
    run(topics_made(bearer))
    described = LIBRARY.AdminClient({**bearer.librdkafka(), "log_level": 0}).list_topics(timeout=60)
    assert {topic.name for topic in TOPICS} <= set(described.topics)


@pytest.mark.parametrize(
    ("changes", "lasts", "reason"),
    [
        ({"secret": "another-word"}, 60, r"the token endpoint .* answers 401 \(invalid_client\) to the client earshot"),
        ({"endpoint": "http://127.0.0.1:1/token"}, 60, "the token endpoint .* does not answer: .*"),
        ({}, -1, "the token endpoint .* gives a token that has expired: .*"),
    ],
    ids=["secret", "nobody there", "expired"],
)
def test_missing_token_is_one_clear_line(
    bearer: KafkaConnection, endpoint: tuple[Endpoint, TokenClient], changes: dict[str, str], lasts: float, reason: str
) -> None:
    there, client = endpoint
    wrong = msgspec.structs.replace(bearer, tokens=msgspec.structs.replace(client, **changes))
    there.lasts = lasts
    try:
        with pytest.raises(ServiceError, match=rf"^Kafka at 127\.0\.0\.1:\d+: {reason}$"):
            run(topics_made(wrong))
    finally:
        there.lasts = 3600


async def test_service_with_tokens_analyses_session(
    settings: dict[str, str], endpoint: tuple[Endpoint, TokenClient], tmp_path: Path
) -> None:
    tokens = endpoint[1]
    own = {
        "kafka_prefix": "tokens",
        "kafka_sasl_mechanism": "OAUTHBEARER",
        "kafka_sasl_oauthbearer_token_endpoint_url": tokens.endpoint,
        "kafka_sasl_oauthbearer_client_id": tokens.id,
        "kafka_sasl_oauthbearer_client_secret": tokens.secret,
    }
    for field in ("kafka_sasl_username", "kafka_sasl_password"):
        del settings[field]
    with ServiceProcess(tmp_path / "data", **{**settings, **own}) as process:
        async with Client(process) as client:
            await stream_and_compare(client)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl_password": "another-word"}, r"SaslAuthenticationFailed: Authentication failed .*SCRAM-SHA-512"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_password": "another-word"},
            "SaslAuthenticationFailed: Authentication failed",
        ),
        ({"ssl_ca_location": STRANGER}, "its certificate is not trusted: .* certificate"),
        ({"ssl_ca_location": None}, "its certificate is not trusted: .* certificate"),
        ({"bootstrap": ("127.0.0.1:1",)}, ".*Connect"),
    ],
    ids=["password, SCRAM", "password, PLAIN", "authority", "no authority", "nobody there"],
)
def test_failed_connection_is_one_clear_line(secured: KafkaConnection, changes: dict[str, object], reason: str) -> None:
    wrong = msgspec.structs.replace(secured, **changes)
    for work, error in (topics_made, ServiceError), (read, Unavailable):
        with pytest.raises(error, match=rf"^Kafka at 127\.0\.0\.1:\d+: {reason}.*$") as refused:
            run(work(wrong))
        assert "word" not in str(refused.value).replace("password", "")


def test_hostname_mismatch_is_rejected_unless_check_is_off(secured: KafkaConnection) -> None:
    """The certificate names 127.0.0.1."""
    (address,) = secured.bootstrap
    elsewhere = msgspec.structs.replace(secured, bootstrap=(address.replace("127.0.0.1", "localhost"),))
    with pytest.raises(ServiceError, match="not trusted: Hostname mismatch"):
        run(topics_made(elsewhere))
    run(topics_made(msgspec.structs.replace(elsewhere, ssl_check_hostname=False)))


async def test_service_analyses_session_on_secured_brokers(settings: dict[str, str], tmp_path: Path) -> None:
    """Includes `usage --recount`, which reads the log beside the service."""
    with ServiceProcess(tmp_path / "data", **settings) as process:
        async with Client(process) as client:
            await stream_and_compare(client)
        process.command("usage", "--recount")


def test_service_with_wrong_password_prints_reason(settings: dict[str, str], tmp_path: Path) -> None:
    process = ServiceProcess(tmp_path / "data", **{**settings, "kafka_sasl_password": "another-word"}).start(wait=0)
    assert process.process is not None
    assert process.process.wait(60) in (1, 2)
    (said,) = [line for line in process.log.read_text().splitlines() if not line.startswith("{")]
    line = r"earshot: EARSHOT_BROKER: Kafka at 127\.0\.0\.1:\d+: SaslAuthenticationFailed: .*"
    assert re.fullmatch(line, said)
    assert "another-word" not in process.log.read_text()


def allow(operator: KafkaConnection, prefix: str, *operations: str) -> None:
    client: Any = LIBRARY.AdminClient(operator.librdkafka())
    rules = [
        LIBRARY.AclBinding(
            LIBRARY.ResourceType.TOPIC,
            prefix,
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


def test_start_names_missing_rights(connections: tuple[KafkaConnection, KafkaConnection]) -> None:
    user, operator = (msgspec.structs.replace(one, prefix="guarded") for one in connections)
    run(topics_made(operator))
    allow(operator, "guarded", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ")
    with pytest.raises(TopicsDiffer) as refused:
        wait_for(lambda: run(topics_made(user)))
    for topic in TOPICS:
        assert f"{user.topic(topic.name)}: the user lacks the right to WRITE" in str(refused.value)
    allow(operator, "guarded", "WRITE")

    def accepted() -> bool:
        try:
            run(topics_made(user))
        except TopicsDiffer:
            return False
        return True

    wait_for(accepted)


async def test_open_transaction_of_a_stranger_hides_nothing(
    connections: tuple[KafkaConnection, KafkaConnection],
) -> None:
    operator = msgspec.structs.replace(connections[1], prefix="visited")
    await topics_made(operator)
    topic = operator.topic(catalog.COMMANDS)
    stranger: Any = Producer({**operator.librdkafka(), "transactional.id": "stranger"})
    ours: Any = Producer(operator.librdkafka())
    await asyncio.to_thread(stranger.init_transactions, 30)
    stranger.begin_transaction()
    for producer, value in (stranger, b"open"), (ours, b"ours"):
        producer.produce(topic, value, b"key", 1)
        assert await asyncio.to_thread(producer.flush, 30) == 0
    consumers, tp = Consumers(operator, LIMIT), catalog.TopicPartition(catalog.COMMANDS, 1)
    begin, end = (await consumers.bounds([tp]))[tp]
    assert (begin, end) == (0, 2)
    values = [record.value async for records in consumers.read(tp, begin, end) for record in records]
    assert values == [b"open", b"ours"]
    await asyncio.to_thread(consumers.close)
    await asyncio.to_thread(stranger.abort_transaction, 30)
