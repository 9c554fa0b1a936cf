"""What clients of both libraries are given to reach the brokers."""

from __future__ import annotations

import inspect
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from streams.kafka.connection import KafkaConnection, UnusableFile
from topics import catalog

HOSTS = ("a:9092", "b:9092")
AUTHORITIES = Path(__file__).with_name("authority.pem")
FULL = KafkaConnection(HOSTS, "sasl_ssl", "SCRAM-SHA-256", "earshot", "secret-word", ssl_ca_location=AUTHORITIES)


def test_what_is_not_set_is_left_to_librdkafka() -> None:
    assert KafkaConnection(HOSTS).librdkafka() == {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "plaintext",
    }


def test_librdkafka_is_told_everything() -> None:
    assert FULL.librdkafka() == {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "earshot",
        "sasl.password": "secret-word",
        "ssl.ca.location": str(AUTHORITIES),
        "ssl.endpoint.identification.algorithm": "https",
    }


@pytest.mark.parametrize(("prefix", "name"), [("earshot", catalog.CHANGELOG), ("a.b_c", "a.b_c-rows-changelog")])
def test_topics_have_the_prefix_on_the_brokers_alone(prefix: str, name: str) -> None:
    connection = KafkaConnection(HOSTS, prefix=prefix)
    assert connection.topic(catalog.CHANGELOG) == name
    assert connection.catalogued(name) == catalog.CHANGELOG


@pytest.mark.parametrize("connection", [KafkaConnection(HOSTS), FULL], ids=repr)
def test_librdkafka_takes_it(connection: KafkaConnection) -> None:
    confluent_kafka.Producer({**connection.librdkafka(), "log_level": 0})


@pytest.mark.parametrize("client", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient])
def test_every_client_of_aiokafka_takes_it(client: Any) -> None:
    assert FULL.aiokafka().keys() <= inspect.signature(client).parameters.keys()


def test_a_certificate_must_be_made_out_to_the_host_unless_it_is_said_otherwise() -> None:
    strict = FULL.ssl_context()
    assert strict is not None
    assert strict.check_hostname
    lax = KafkaConnection(HOSTS, "ssl", ssl_check_hostname=False).ssl_context()
    assert lax is not None
    assert not lax.check_hostname
    assert lax.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("certificate", "key", "field", "fault"),
    [
        ("missing", "empty", "ssl_certificate_location", "missing: No such file"),
        (str(AUTHORITIES), "missing", "ssl_key_location", "missing: No such file"),
        ("empty", "empty", "ssl_certificate_location", "do not make a pair: "),
        (str(AUTHORITIES), "empty", "ssl_certificate_location", "do not make a pair: "),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, certificate: str, key: str, field: str, fault: str
) -> None:
    (tmp_path / "empty").touch()
    connection = KafkaConnection(
        HOSTS, "ssl", ssl_certificate_location=tmp_path / certificate, ssl_key_location=tmp_path / key
    )
    with pytest.raises(UnusableFile, match=fault) as caught:
        connection.aiokafka()
    assert caught.value.field == field


def test_a_key_with_a_password_is_opened_by_that_alone(tmp_path: Path) -> None:
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
