"""The service on brokers that require TLS and a password, configured as by an operator."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import launched_kafka
from tests.kafka_launcher.security import BrokerSecurity
from tests.process import ServiceProcess
from tests.recovery.load import Client
from tests.recovery.truth import expected_events

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings of a service that a broker accepts."""
    security = BrokerSecurity(tmp_path_factory.mktemp("security"), "earshot", "secret-word")
    with launched_kafka(security=security) as cluster:
        yield {
            "broker": f"kafka://{cluster.secured_bootstrap}",
            "partitions": "2",
            "kafka_security_protocol": "sasl_ssl",
            "kafka_sasl_mechanism": "SCRAM-SHA-512",
            "kafka_sasl_username": security.user,
            "kafka_sasl_password": security.password,
            "kafka_ssl_ca_location": str(security.authority),
        }


async def _stream(process: ServiceProcess) -> None:
    async with Client(process) as client:
        stream = await client.open()
        for _ in range(4):
            await client.put(stream, 1)
        await client.seal(stream)
        assert await client.events(stream.session) == expected_events(stream.chunks)


def test_session_end_to_end(settings: dict[str, str], tmp_path: Path) -> None:
    """Includes `usage --recount`, which reads the log beside the service."""
    process = ServiceProcess(tmp_path / "data", **settings)
    try:
        asyncio.run(_stream(process.start()))
        process.command("usage", "--recount")
    finally:
        assert process.stop() == 0, process.tail()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"kafka_sasl_password": "another-word"},
            r"EARSHOT_BROKER: Kafka at 127\.0\.0\.1:\d+: SaslAuthenticationFailed: .*",
        ),
        (
            {"kafka_ssl_ca_location": str(Path(__file__).parents[1] / "unit" / "streams" / "kafka" / "authority.pem")},
            r"EARSHOT_BROKER: Kafka at 127\.0\.0\.1:\d+: its certificate is not trusted: .*",
        ),
        ({"kafka_ssl_ca_location": "missing.pem"}, r"EARSHOT_KAFKA_SSL_CA_LOCATION: missing\.pem: No such file.*"),
    ],
    ids=["password", "authority", "file"],
)
def test_failed_start_prints_reason(
    settings: dict[str, str], tmp_path: Path, changes: dict[str, str], line: str
) -> None:
    process = ServiceProcess(tmp_path / "data", **{**settings, **changes}).start(wait=0)
    assert process.process is not None
    assert process.process.wait(60) in (1, 2)
    (said,) = [line for line in process.log.read_text().splitlines() if not line.startswith("{")]
    assert re.fullmatch(f"earshot: {line}", said)
    assert "another-word" not in process.log.read_text()
