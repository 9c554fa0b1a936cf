"""A real Kafka on one machine without Docker: one node, or several that replicate."""

import re
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from tests.kafka_launcher.jars import LauncherError, class_archive, jars
from tests.kafka_launcher.node import STOP_SECONDS, Door, KafkaNode, require_free
from tests.kafka_launcher.security import BrokerSecurity
from tests.ports import free_ports

PORT: Final = 19092


class KafkaCluster:
    """Nodes 1.. on 127.0.0.1, with data under `directory`, which survives a restart.

    KafkaNode n serves clients at port + 2 (n - 1) and the other controllers one above. With `port` None free ports are
    used. A start that fails leaves nothing running.

    For tests: each of `proxies` lists a proxy's port for each node, and the n-th proxy forwards to the n-th of `doors`.
    `settings` override the brokers' defaults here. With `security` the nodes also listen at `secured_bootstrap`.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 1,
        port: int | None = PORT,
        proxies: Sequence[Sequence[int]] = (),
        settings: Mapping[str, object] = MappingProxyType({}),
        security: BrokerSecurity | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        self._directory = directory.absolute()
        numbers = range(1, nodes + 1)
        free = iter(free_ports(nodes * (3 + len(proxies))))
        first = {n: next(free) if port is None else port + 2 * (n - 1) for n in numbers}
        self._ports = {n: (first[n], next(free) if port is None else first[n] + 1) for n in numbers}
        #: For each proxy, the door of each node.
        self.doors = [
            [Door(next(free), advertised, f"DOOR{count}") for advertised in ports]
            for count, ports in enumerate(proxies, 1)
        ]
        #: Nodes that stopped by themselves.
        self._stopped: set[int] = set()
        self._security = security
        self._secured = [security.door(next(free)) for _ in numbers] if security else []
        doors = [*self.doors, self._secured] if security else self.doors
        more = {**security.settings(), **settings} if security else settings
        options = security.format_options() if security else ()
        self._nodes = {
            n: KafkaNode(
                n, self._directory / f"node-{n}", self._ports, [row[n - 1] for row in doors], more, options, jvm
            )
            for n in numbers
        }

    @property
    def data(self) -> list[Path]:
        return [node.data for node in self._nodes.values()]

    @property
    def bootstrap(self) -> str:
        """`host:port` of each node, joined by commas."""
        return ",".join(f"127.0.0.1:{clients}" for clients, _ in self._ports.values())

    @property
    def secured_bootstrap(self) -> str:
        """`host:port` of each node's listener with TLS and authentication, joined by commas."""
        return ",".join(f"127.0.0.1:{door.port}" for door in self._secured)

    @property
    def processes(self) -> dict[int, int | None]:
        """The number of each node's process, None if there is none."""
        return {number: node.process for number, node in self._nodes.items()}

    def start(self) -> None:
        """Format new nodes, start all nodes, return when clients can work.

        Raises:
            LauncherError: No java, mvn or jars, a port in use, data of another cluster size, or a node that does not
        answer.
        """
        cluster = self._id()
        for port in (port for pair in self._ports.values() for port in pair):
            require_free(port)
        if self._security is not None:
            self._security.make()
        try:
            self._format(cluster)
            for node in self._nodes.values():
                node.start()
            for node in self._nodes.values():
                node.wait(len(self._nodes))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes; allowed twice."""
        for node in self._nodes.values():
            node.terminate()
        for node in self._nodes.values():
            node.join()

    def kill(self, number: int = 1) -> None:
        self._nodes[number].kill()

    def restart(self, number: int = 1) -> None:
        """Start a node again, after `kill` or while it runs; return when it answers and knows all running nodes."""
        node = self._nodes[number]
        node.terminate()
        node.join()
        node.start()
        node.wait(sum(other.running for other in self._nodes.values()))

    def watch(self, seconds: float) -> dict[int, LauncherError]:
        """Sleep, then return an error for each node, by number, that stopped by itself since the last call.

        Raises:
            LauncherError: The last node stopped.
        """
        time.sleep(seconds)
        stopped = [node for node in self._nodes.values() if not node.running]
        if len(stopped) == len(self._nodes):
            raise stopped[-1].failure("stopped")
        failures = {node.number: node.failure("stopped") for node in stopped if node.number not in self._stopped}
        self._stopped = {node.number for node in stopped}
        return failures

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _id(self) -> str:
        """Return the id of the cluster in the directory; a new directory belongs to a new cluster of this size."""
        there = sorted(self._directory.glob("node-*"))
        if there and len(there) != len(self._nodes):
            raise LauncherError(
                f"{self._directory} holds a cluster of {len(there)} node(s), not {len(self._nodes)}; "
                "give another directory or the same number"
            )
        for node in self._nodes.values():
            node.data.parent.mkdir(parents=True, exist_ok=True)
        for formatted in self._directory.glob("node-*/data/meta.properties"):
            return re.findall(r"(?m)^cluster\.id=(\S+)$", formatted.read_text())[0]  # type: ignore[no-any-return]
        # A leading dash would look like an option.
        while (fresh := secrets.token_urlsafe(16)).startswith("-"):
            pass
        return fresh

    def _format(self, cluster: str) -> None:
        # In parallel: each is a JVM that lives for a second.
        running = {node: node.prepare(cluster) for node in self._nodes.values()}
        for node, process in running.items():
            if process is not None and process.wait() != 0:
                raise node.failure("could not format its data directory")


def archive_classes() -> None:
    """Keep the classes that a broker loads, parsed and verified, unless this user has them.

    A start takes a third less processor time with them.
    """
    archive = class_archive()
    if archive.exists():
        return
    jars()
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archiving-") as scratch:
        made = Path(scratch) / archive.name
        cluster = KafkaCluster(Path(scratch), port=None, jvm=[f"-XX:ArchiveClassesAtExit={made}"])
        cluster.start()
        began = time.monotonic()
        cluster.stop()
        # What a process was writing when it was killed is not used, and some Java writes nothing.
        if time.monotonic() - began < STOP_SECONDS and made.exists():
            made.rename(archive)
