"""A real Kafka for tests: a container where an engine answers, our launcher where Java is, else a skip."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from infra.kafka.launcher import KafkaCluster
from infra.kafka.node import MAX_BYTES
from infra.kafka.security import BrokerSecurity
from streams.kafka.connection import KafkaConnection

IMAGE = "confluentinc/cp-kafka:8.1.0"


class Broker(msgspec.Struct, frozen=True):
    """Where Kafka is; `cluster` can be killed and restarted, and is None for a container."""

    bootstrap: str
    cluster: KafkaCluster | None = None

    @property
    def connection(self) -> KafkaConnection:
        """How clients reach it."""
        return KafkaConnection(tuple(self.bootstrap.split(",")))

    @property
    def url(self) -> str:
        """The value of EARSHOT_BROKER."""
        return f"kafka://{self.bootstrap}"


@contextmanager
def kafka_broker() -> Iterator[Broker]:
    """Yield an empty one-node Kafka on free ports, gone with its data afterwards."""
    if container_engine_answers():
        yield from _container()
    else:
        with launched_kafka() as cluster:
            yield Broker(cluster.bootstrap, cluster)


@contextmanager
def launched_kafka(
    nodes: int = 1,
    proxies: Sequence[Sequence[int]] = (),
    settings: Mapping[str, object] = MappingProxyType({}),
    security: BrokerSecurity | None = None,
) -> Iterator[KafkaCluster]:
    """Yield a cluster of our launcher, which a test may kill; skip where its programs are not installed."""
    if missing := [name for name in ("java", "mvn") if shutil.which(name) is None]:
        pytest.skip(f"no Kafka: no container engine to use here, and {' and '.join(missing)} not installed")
    with (
        tempfile.TemporaryDirectory(prefix="earshot-kafka-") as directory,
        KafkaCluster(Path(directory), nodes, None, proxies, settings, security) as cluster,
    ):
        yield cluster


def container_engine_answers() -> bool:
    """Tell whether containers can be started here."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "version", "-f", "{{.Server.Version}}"], capture_output=True, timeout=30)
    return asked.returncode == 0


def _container() -> Iterator[Broker]:
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer(IMAGE).with_kraft()
    container.with_env("KAFKA_MESSAGE_MAX_BYTES", str(MAX_BYTES))
    container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
    with container as kafka:
        yield Broker(kafka.get_bootstrap_server())
