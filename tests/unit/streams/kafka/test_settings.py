"""Connection settings of both client libraries, and the settings of topics."""

import inspect
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from streams.kafka import topic_state, topics
from streams.kafka.connection import KafkaConnection
from streams.kafka.credentials import TokenClient, UnusableFile
from streams.kafka.topic_settings import alteration, longer_retention_ms, misfits, needed_settings
from streams.kafka.topic_state import TopicStates
from topics import catalog
from topics.errors import ServiceError, Unavailable

HOSTS = ("a:9092", "b:9092")
AUTHORITIES = Path(__file__).with_name("authority.pem")
FULL = KafkaConnection(HOSTS, "sasl_ssl", "SCRAM-SHA-256", "earshot", "secret-word", ssl_ca_location=AUTHORITIES)


def test_librdkafka_accepts_configured_settings() -> None:
    known = {"bootstrap.servers": "a:9092,b:9092", "security.protocol": "plaintext"}
    assert KafkaConnection(HOSTS).librdkafka() == known
    assert FULL.librdkafka() == {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "earshot",
        "sasl.password": "secret-word",
        "ssl.ca.location": str(AUTHORITIES),
        "ssl.endpoint.identification.algorithm": "https",
    }
    tokens = TokenClient("https://idp/token", "earshot", "secret-word", "kafka", AUTHORITIES)
    oauth = msgspec.structs.replace(FULL, sasl_mechanism="OAUTHBEARER", sasl_username=None, tokens=tokens)
    assert oauth.librdkafka()["sasl.oauthbearer.client.secret"] == "secret-word"
    for connection in (KafkaConnection(HOSTS), FULL, oauth):
        confluent_kafka.Producer({**connection.librdkafka(), "log_level": 0})
    assert repr(FULL) == "KafkaConnection('a:9092,b:9092', 'sasl_ssl')", "no password is shown"


@pytest.mark.parametrize(("prefix", "name"), [("earshot", catalog.CHANGELOG), ("a.b_c", "a.b_c-rows-changelog")])
def test_prefix_applies_only_on_brokers(prefix: str, name: str) -> None:
    connection = KafkaConnection(HOSTS, prefix=prefix)
    assert connection.topic(catalog.CHANGELOG) == name
    assert connection.catalogued(name) == catalog.CHANGELOG


@pytest.mark.parametrize("client", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient])
def test_aiokafka_clients_accept_settings(client: Any) -> None:
    assert FULL.aiokafka().keys() <= inspect.signature(client).parameters.keys()


def test_hostname_is_checked_unless_disabled() -> None:
    for connection, strict in ((FULL, True), (KafkaConnection(HOSTS, "ssl", ssl_check_hostname=False), False)):
        context = connection.ssl_context()
        assert context is not None
        assert (context.check_hostname, context.verify_mode) == (strict, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("certificate", "key", "field", "fault"),
    [
        ("missing", "empty", "ssl_certificate_location", "missing: No such file"),
        (str(AUTHORITIES), "missing", "ssl_key_location", "missing: No such file"),
        ("empty", "empty", "ssl_certificate_location", "do not make a pair: "),
        (str(AUTHORITIES), "empty", "ssl_certificate_location", "do not make a pair: "),
    ],
)
def test_unusable_file_is_named(tmp_path: Path, certificate: str, key: str, field: str, fault: str) -> None:
    (tmp_path / "empty").touch()
    connection = KafkaConnection(
        HOSTS, "ssl", ssl_certificate_location=tmp_path / certificate, ssl_key_location=tmp_path / key
    )
    with pytest.raises(UnusableFile, match=fault) as caught:
        connection.aiokafka()
    assert caught.value.field == field


def test_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a key with")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ["-newkey", "rsa:2048", "-passout", "pass:secret-word", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", "-subj", "/CN=client", *made], check=True, capture_output=True)
    connection = KafkaConnection(
        HOSTS, "ssl", ssl_certificate_location=certificate, ssl_key_location=key, ssl_key_password="secret-word"
    )
    assert connection.ssl_context() is not None
    assert connection.librdkafka()["ssl.key.password"] == "secret-word"
    for wrong in None, "another-word":
        with pytest.raises(UnusableFile, match="do not make a pair: "):
            msgspec.structs.replace(connection, ssl_key_password=wrong).ssl_context()


# --- settings of new topics, and their comparison with existing ones ------------------------------------------------

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
TOPICS = {topic.name: topic for topic in catalog.topics(DAY_MS)}
COMMANDS, CHANGELOG = TOPICS[catalog.COMMANDS], TOPICS[catalog.CHANGELOG]


def test_changelog_topic_has_compaction_settings() -> None:
    settings = needed_settings(CHANGELOG)
    needed = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "delete.retention.ms": str(catalog.KEEP_TOMBSTONES_MS),
        "min.compaction.lag.ms": str(catalog.COMPACTION_LAG_MS),
    }
    assert settings.items() >= needed.items()
    assert "retention.ms" not in settings
    assert int(settings["min.compaction.lag.ms"]) < int(settings["max.compaction.lag.ms"])


@pytest.mark.parametrize("chunk_limit", [catalog.DEFAULT_CHUNK_LIMIT, 64 * 1024 * 1024])
def test_segment_holds_largest_record(chunk_limit: int) -> None:
    for topic in catalog.topics(DAY_MS, chunk_limit):
        settings = needed_settings(topic)
        assert int(settings.get("segment.bytes", 2**30)) >= int(settings["max.message.bytes"])


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms"), [(1000, 60_000), (HOUR_MS, 150_000), (DAY_MS, HOUR_MS), (30 * DAY_MS, 30 * HOUR_MS)]
)
def test_segment_time_is_24th_of_retention_or_a_minute(retention_ms: int, segment_ms: int) -> None:
    settings = needed_settings(catalog.topics(retention_ms)[0])
    assert (settings["retention.ms"], settings["segment.ms"]) == (str(retention_ms), str(segment_ms))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        ({"retention.ms": "-1"}, []),
        ({"retention.ms": "-1", "segment.ms": str(7 * DAY_MS)}, []),
        ({"retention.ms": str(DAY_MS + 1), "max.message.bytes": str(2**30)}, []),
        ({"segment.ms": "60000"}, []),
        ({"retention.ms": str(2 * DAY_MS), "segment.ms": str(2 * HOUR_MS)}, []),
        ({"segment.ms": str(2 * HOUR_MS)}, ["segment.ms=7200000, needed is 3600000 or less"]),
        ({"retention.ms": "1000"}, ["retention.ms=1000, needed is 86400000 or more"]),
        ({"max.message.bytes": "1000000"}, ["max.message.bytes=1000000, needed is 1114112 or more"]),
        ({"cleanup.policy": "compact"}, ["cleanup.policy=compact, needed is delete"]),
        ({"message.timestamp.type": "CreateTime"}, ["message.timestamp.type=CreateTime, needed is LogAppendTime"]),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "5"},
            ["cleanup.policy=compact,delete, needed is delete", "retention.ms=5, needed is 86400000 or more"],
        ),
    ],
    ids=repr,
)
def test_each_misfit_setting_is_named(changes: dict[str, str], lines: list[str]) -> None:
    assert [str(misfit) for misfit in misfits(COMMANDS, {**needed_settings(COMMANDS), **changes})] == lines


@pytest.mark.parametrize(
    ("name", "enough", "wrong"),
    [
        ("delete.retention.ms", str(2 * DAY_MS), "60000"),
        ("min.compaction.lag.ms", str(HOUR_MS), "0"),
        ("max.compaction.lag.ms", str(HOUR_MS), str(2**63 - 1)),
        ("min.cleanable.dirty.ratio", "0.1", "0.5"),
        ("segment.bytes", str(2**24), str(2**30)),
        ("segment.ms", "60000", str(7 * DAY_MS)),
    ],
)
def test_changelog_setting_may_exceed_but_not_miss_requirement(name: str, enough: str, wrong: str) -> None:
    needed = needed_settings(CHANGELOG)
    assert misfits(CHANGELOG, {**needed, name: enough}) == []
    assert [misfit.name for misfit in misfits(CHANGELOG, {**needed, name: wrong})] == [name]


@pytest.mark.parametrize(
    ("kept", "longer"), [("-1", -1), (str(DAY_MS + 1), DAY_MS + 1), (str(DAY_MS), None), ("5", None)]
)
def test_longer_retention_than_configured_is_noticed(kept: str, longer: int | None) -> None:
    assert longer_retention_ms(COMMANDS, {"retention.ms": kept}) == longer
    assert longer_retention_ms(CHANGELOG, {"retention.ms": kept}) is None


def test_one_command_alters_all_misfit_settings() -> None:
    assert misfits(COMMANDS, {}) == []
    wrong = misfits(COMMANDS, {**needed_settings(COMMANDS), "retention.ms": "5", "max.message.bytes": "7"})
    assert alteration("a:9092,b:9092", COMMANDS.name, wrong) == (
        "kafka-configs.sh --bootstrap-server a:9092,b:9092 --alter --entity-type topics "
        "--entity-name earshot.session.command.v1 --add-config max.message.bytes=1114112,retention.ms=86400000"
    )


class SlowAdmin:
    """A broker that lists its topics at the second request, and knows their partitions at the third description."""

    def __init__(self, known_at: float = 3) -> None:
        self.known_at = known_at
        self.lists = self.descriptions = 0

    async def list_topics(self) -> list[str]:
        self.lists += 1
        return ["a", "b"] if self.lists > 1 else ["a"]

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        self.descriptions += 1
        known = self.descriptions >= self.known_at
        return [{"topic": name, "partitions": [0, 1] if known or name == "a" else []} for name in names]


async def test_partitions_of_new_topic_are_awaited() -> None:
    admin = SlowAdmin()
    assert await topics._count_partitions(admin, ["a", "b"]) == {"a": 2, "b": 2}
    assert (admin.lists, admin.descriptions) == (4, 3)


async def test_topic_that_stays_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "VISIBLE_SECONDS", 0.3)
    with pytest.raises(ServiceError, match="Kafka does not show all topics"):
        await topics._count_partitions(SlowAdmin(known_at=float("inf")), ["a", "b"])


@pytest.mark.parametrize("ask", [TopicStates.describe, TopicStates.settings])
def test_no_answer_about_topics_is_unavailable(
    ask: Callable[[TopicStates, list[str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than the library's own wait for a connection, which this test does not wait for.
    monkeypatch.setattr(topic_state, "ANSWER_SECONDS", 0.01)
    with pytest.raises(Unavailable, match="Kafka does not answer"):
        ask(TopicStates(KafkaConnection(("127.0.0.1:1",))), ["commands"])
