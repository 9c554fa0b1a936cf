"""A real Kafka for tests: a container if an engine answers, our launcher if there is Java, otherwise a skip.

One broker serves all tests of a process, or of several if EARSHOT_TEST_KAFKA names it: each service has its own topics
with a unique prefix. Tests that stop brokers or change their settings launch a cluster.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import admin as kafka_admin

from streams.kafka.connection import KafkaConnection
from tests.kafka_launcher.launcher import KafkaCluster, archive_classes
from tests.kafka_launcher.node import MAX_BYTES
from tests.kafka_launcher.security import BrokerSecurity

IMAGE = "confluentinc/cp-kafka:8.1.0"
#: `host:port` of a broker to use instead of one that is started here.
NAMED: Final = "EARSHOT_TEST_KAFKA"

#: Ends this process's shared broker.
_ending = ExitStack()


class Broker(msgspec.Struct, frozen=True):
    """Kafka's address, and the topic prefix of one service."""

    bootstrap: str
    prefix: str

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection(tuple(self.bootstrap.split(",")), prefix=self.prefix)

    @property
    def settings(self) -> dict[str, str]:
        return {"broker": f"kafka://{self.bootstrap}", "kafka_prefix": self.prefix}


@contextmanager
def kafka_broker() -> Iterator[Broker]:
    """Yield the shared Kafka with an unused prefix; delete the prefix's topics afterwards."""
    broker = Broker(_shared_bootstrap(), f"test-{secrets.token_hex(6)}")
    try:
        yield broker
    finally:
        _delete_topics(broker)


@contextmanager
def shared_broker() -> Iterator[str | None]:
    """Yield the address of a Kafka for the tests of several processes; None if none can be started."""
    with ExitStack() as stack:
        if not (missing := _missing_programs()):
            archive_classes()
        yield None if missing and not container_engine_answers() else _start(stack)


def end_shared_broker() -> None:
    """End the broker that tests of this process have started."""
    _shared_bootstrap.cache_clear()
    _ending.close()


@cache
def _shared_bootstrap() -> str:
    return os.environ.get(NAMED) or _start(_ending)


def _start(stack: ExitStack) -> str:
    if container_engine_answers():
        return stack.enter_context(_container())
    return stack.enter_context(launched_kafka()).bootstrap


def _delete_topics(broker: Broker) -> None:
    """Delete the topics of a service; the broker drops the group itself once its members are gone."""
    admin: Any = kafka_admin.AdminClient(dict(broker.connection.librdkafka()))
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(broker.prefix)]
    if names:
        for deleted in admin.delete_topics(names, operation_timeout=30).values():
            deleted.result()


@asynccontextmanager
async def admin_client(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@contextmanager
def launched_kafka(
    nodes: int = 1,
    proxies: Sequence[Sequence[int]] = (),
    settings: Mapping[str, object] = MappingProxyType({}),
    security: BrokerSecurity | None = None,
) -> Iterator[KafkaCluster]:
    """Yield a cluster of our launcher, which a test may kill; skip if its programs are not installed."""
    require_programs()
    with (
        tempfile.TemporaryDirectory(prefix="earshot-kafka-") as directory,
        KafkaCluster(Path(directory), nodes, None, proxies, settings, security) as cluster,
    ):
        yield cluster


def require_programs() -> None:
    """Skip the test if the launcher's programs are not installed."""
    if missing := _missing_programs():
        pytest.skip(f"no Kafka: no container engine to use here, and {' and '.join(missing)} not installed")


def _missing_programs() -> list[str]:
    return [name for name in ("java", "mvn") if shutil.which(name) is None]


def container_engine_answers() -> bool:
    """Return whether containers can be started here."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "version", "-f", "{{.Server.Version}}"], capture_output=True, timeout=30)
    return asked.returncode == 0


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer(IMAGE).with_kraft()
    container.with_env("KAFKA_MESSAGE_MAX_BYTES", str(MAX_BYTES))
    container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
    with container as kafka:
        yield kafka.get_bootstrap_server()
