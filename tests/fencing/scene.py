"""Brokers, and nodes that each reach them through a proxy."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.nodes import service_nodes
from tests.kafka.broker import require_programs
from tests.kafka.compaction import QUICK_CLEANER
from tests.kafka.proxy import KafkaProxy
from tests.kafka_launcher.launcher import KafkaCluster
from tests.process import ServiceProcess
from topics.catalog import CHANGELOG

#: Limit for a node to become ready; two cores may be busy.
SETTLE_SECONDS = 150.0


@dataclass
class ProxiedNode:
    """A node, and its proxy to the brokers."""

    process: ServiceProcess
    proxy: KafkaProxy


@dataclass
class Scene:
    cluster: KafkaCluster
    nodes: list[ProxiedNode]

    @property
    def processes(self) -> list[ServiceProcess]:
        return [node.process for node in self.nodes]

    async def settle(self) -> None:
        """Start ended nodes, and wait until all are ready.

        Raises:
            AssertionError: A node does not become ready; includes the end of its log.
        """
        for process in self.processes:
            if not process.running:
                await asyncio.to_thread(process.start, 0)
        for process in self.processes:
            await asyncio.to_thread(process.wait_ready, SETTLE_SECONDS)

    def rebuild(self) -> ServiceProcess:
        """Stop all nodes, delete their tables, and return one that has rebuilt them from the changelog."""
        for process in self.processes:
            process.stop()
            process.drop_tables()
        return self.processes[0].start(SETTLE_SECONDS)


@contextmanager
def scene(directory: Path, nodes: int, brokers: int, **settings: str | int) -> Iterator[Scene]:
    """Yield a running scene, with the data of the brokers in `kafka` of the directory; stop it afterwards."""
    require_programs()
    with ExitStack() as stack:
        proxies = [stack.enter_context(KafkaProxy(brokers)) for _ in range(nodes)]
        ports = [proxy.ports for proxy in proxies]
        cluster = stack.enter_context(KafkaCluster(directory / "kafka", brokers, None, ports, QUICK_CLEANER))
        for proxy, doors in zip(proxies, cluster.doors, strict=True):
            proxy.watch(CHANGELOG)
            proxy.open({door.advertised: door.port for door in doors})
        own = ({"broker": f"kafka://{proxy.bootstrap}"} for proxy in proxies)
        # A node fills one partition before the next.
        shared = {"partitions": nodes, "kafka_replication": brokers, **settings}
        processes = stack.enter_context(service_nodes(directory, *own, cluster=cluster, **shared))
        for process in processes:
            # A paused process would not notice a request to stop.
            stack.callback(process.resume)
            process.start(SETTLE_SECONDS)
        yield Scene(cluster, list(map(ProxiedNode, processes, proxies)))
