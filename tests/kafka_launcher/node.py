"""One Kafka process, broker and controller at once, on 127.0.0.1."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka_launcher import jars
from tests.kafka_launcher.jars import LauncherError

#: The largest record batch that brokers accept. Topics have lower limits (`topics.catalog.record_limit`).
MAX_BYTES: Final = 16 * 1024 * 1024
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
#: For programs that live for a second, which gain nothing from better code or concurrent collection.
TOOL_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JVM: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class Door(msgspec.Struct, frozen=True):
    """Another listener of a node, which directs its clients to another port, such as a proxy's."""

    port: int
    advertised: int
    name: str
    protocol: str = "PLAINTEXT"


class KafkaNode:
    """Node `number` (from 1) of a cluster whose nodes listen on `ports`, {number: (clients, controllers)}.

    `settings` override those of `properties`; `format_options` go to the tool that formats a data directory. `jvm` are
    options of Java, by default to use the classes that are kept.
    """

    def __init__(
        self,
        number: int,
        directory: Path,
        ports: Mapping[int, tuple[int, int]],
        doors: Sequence[Door] = (),
        settings: Mapping[str, object] = MappingProxyType({}),
        format_options: Sequence[str] = (),
        jvm: Sequence[str] = (),
    ) -> None:
        self.number = number
        self.port = ports[number][0]
        self.data = directory / "data"
        self.log = directory / "server.log"
        self._properties = directory / "server.properties"
        self._text = properties(number, self.data, ports, doors, settings)
        self._format_options = format_options
        self._jvm = jvm or [f"-XX:SharedArchiveFile={jars.class_archive()}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def process(self) -> int | None:
        """The number of the process, None if there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def prepare(self, cluster: str) -> subprocess.Popen[bytes] | None:
        """Write the settings and start formatting the data directory; None if it is already formatted."""
        self._properties.write_text(self._text)
        if (self.data / "meta.properties").exists():
            return None
        return self._java(
            "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties), *self._format_options
        )

    def start(self) -> None:
        """Start the process; `wait` returns when it answers."""
        self._process = self._java("kafka.Kafka", str(self._properties), options=JVM)

    def wait(self, brokers: int, seconds: float = READY_SECONDS) -> None:
        """Wait until this node answers and knows `brokers` live brokers.

        Raises:
            LauncherError: It stopped, or `seconds` passed; the message has the end of its log.
        """
        deadline = time.monotonic() + seconds
        while _known(self.port) < brokers:
            if not self.running:
                raise self.failure("stopped while starting")
            if time.monotonic() > deadline:
                raise self.failure(f"did not answer on port {self.port} in {seconds:g} s")
            time.sleep(0.1)

    def failure(self, what: str) -> LauncherError:
        tail = self.log.read_text(errors="replace").splitlines()[-8:] if self.log.exists() else []
        return LauncherError("\n  ".join([f"Kafka node {self.number} {what}; the end of {self.log}:", *tail]))

    def terminate(self) -> None:
        """Ask the process to stop; `join` waits for it."""
        if self._process is not None and self.running:
            self._process.terminate()

    def join(self) -> None:
        """Wait for a terminating process, and kill it if it does not end."""
        if self._process is None:
            return
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL. The page cache survives, so this simulates no power loss."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _java(self, main: str, *arguments: str, options: tuple[str, ...] = TOOL_JVM) -> subprocess.Popen[bytes]:
        java = jars.tool("java", "default-jre-headless")
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*with_parent(), java, *options, *self._jvm, "-cp", f"{jars.jars()}/*", main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal reaches only the launcher, which stops the nodes in order.
                start_new_session=True,
            )


def _known(port: int) -> int:
    """Return the number of live brokers that the broker at a port knows; 0 while it does not answer.

    A broker answers only after it caught up with the controllers, so an answer means that clients can work.
    """
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    try:
        return len(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return 0


def require_free(port: int) -> None:
    """Raise LauncherError if another process listens at a port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise LauncherError(f"port {port} is not free: {error.strerror}; does another process listen there?") from None


def with_parent() -> list[str]:
    """Return a command prefix that ends a process with its parent, if available (util-linux)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def properties(
    number: int,
    data: Path,
    ports: Mapping[int, tuple[int, int]],
    doors: Sequence[Door] = (),
    more: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the server.properties of a node; `more` overrides the settings here."""
    clients, controllers = ports[number]
    listens = {"PLAINTEXT": clients, "CONTROLLER": controllers, **{door.name: door.port for door in doors}}
    advertised = {**listens, **{door.name: door.advertised for door in doors}}
    protocols = {**dict.fromkeys(listens, "PLAINTEXT"), **{door.name: door.protocol for door in doors}}
    copies = min(len(ports), 3)
    insync = 2 if copies == 3 else 1
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        # Static voters are read at each start, unlike the dynamic quorum, so ports may change between starts.
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{p}" for n, (_, p) in ports.items()),
        "listeners": _addresses(listens),
        "advertised.listeners": _addresses(advertised),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": data,
        "default.replication.factor": copies,
        "min.insync.replicas": insync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": insync,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": insync,
        "share.coordinator.state.topic.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "message.max.bytes": MAX_BYTES,
        "replica.fetch.max.bytes": MAX_BYTES,
        # A killed broker may return only after its old registration has timed out (9 s by default).
        "broker.session.timeout.ms": 5000,
        "broker.heartbeat.interval.ms": 1000,
        # The default takes 128 MiB of a 512 MiB heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
