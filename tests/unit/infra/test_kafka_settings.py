"""How brokers are reached, as settings: what fits together, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from infra.errors import WrongSetting, variable
from infra.settings import Settings, faults
from streams.kafka.connection import KafkaConnection
from tests.conftest import ROOT
from topics import catalog

HOSTS = ("a:9092", "b:9092")
AUTHORITIES = ROOT / "tests" / "unit" / "streams" / "kafka" / "authority.pem"
USER = {
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_mechanism": "scram-sha-512",
    "kafka_sasl_username": "earshot",
    "kafka_sasl_password": "secret-word",
}


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    for field, value in values.items():
        monkeypatch.setenv(variable(field), value)
    return Settings()


def test_a_connection_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch).connection(HOSTS) == KafkaConnection(HOSTS)


def test_a_user_and_an_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = settings(
        monkeypatch,
        **USER,
        kafka_ssl_ca_location=str(AUTHORITIES),
        kafka_ssl_endpoint_identification_algorithm="none",
    ).connection(HOSTS)
    assert connection == KafkaConnection(
        HOSTS,
        "sasl_ssl",
        "SCRAM-SHA-512",
        "earshot",
        "secret-word",
        ssl_ca_location=AUTHORITIES,
        ssl_check_hostname=False,
    )


def test_the_longest_prefix_makes_the_longest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = settings(monkeypatch, kafka_prefix="a" * 226).connection(HOSTS)
    assert max(len(connection.topic(topic.name)) for topic in catalog.topics(0)) == 249


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"kafka_security_protocol": "sasl_ssl"},
            "EARSHOT_KAFKA_SASL_MECHANISM: must be set where brokers are talked to with sasl_ssl",
        ),
        (
            {**USER, "kafka_sasl_password": ""},
            "EARSHOT_KAFKA_SASL_PASSWORD: must be set where brokers are talked to with sasl_ssl",
        ),
        (
            {**USER, "kafka_security_protocol": "ssl"},
            "EARSHOT_KAFKA_SASL_MECHANISM: needs EARSHOT_KAFKA_SECURITY_PROTOCOL=sasl_plaintext or sasl_ssl",
        ),
        (
            {**USER, "kafka_security_protocol": "sasl_plaintext", "kafka_ssl_ca_location": "ca.pem"},
            "EARSHOT_KAFKA_SSL_CA_LOCATION: needs EARSHOT_KAFKA_SECURITY_PROTOCOL=ssl or sasl_ssl",
        ),
        (
            {"kafka_security_protocol": "ssl", "kafka_ssl_key_location": "key.pem"},
            "EARSHOT_KAFKA_SSL_KEY_LOCATION: needs EARSHOT_KAFKA_SSL_CERTIFICATE_LOCATION too",
        ),
        (
            {"kafka_security_protocol": "ssl", "kafka_ssl_certificate_location": "certificate.pem"},
            "EARSHOT_KAFKA_SSL_CERTIFICATE_LOCATION: needs EARSHOT_KAFKA_SSL_KEY_LOCATION too",
        ),
        (
            {"kafka_security_protocol": "ssl", "kafka_ssl_key_password": "secret-word"},
            "EARSHOT_KAFKA_SSL_KEY_PASSWORD: needs EARSHOT_KAFKA_SSL_KEY_LOCATION too",
        ),
        (
            {"kafka_prefix": "audio team"},
            "EARSHOT_KAFKA_PREFIX: must have letters, digits, '.', '_' and '-' alone",
        ),
        ({"kafka_prefix": "a" * 227}, "EARSHOT_KAFKA_PREFIX: String should have at most 226 characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_together_is_one_line(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], line: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(monkeypatch, **values)
    assert faults(refused.value) == [line]


def test_a_file_that_cannot_be_used_names_its_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {"kafka_security_protocol": "ssl", "kafka_ssl_ca_location": str(tmp_path / "ca.pem")}
    with pytest.raises(WrongSetting, match=r"^EARSHOT_KAFKA_SSL_CA_LOCATION: .*ca\.pem: No such file"):
        settings(monkeypatch, **values).connection(HOSTS)


def test_no_password_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    read = settings(monkeypatch, **USER)
    assert "secret-word" not in repr(read) + str(read) + repr(read.connection(HOSTS))
    assert "secret-word" in read.secrets
