"""Three brokers, and nodes that each reach them through a proxy."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.kafka.broker import launched_kafka
from tests.kafka.compaction import QUICK_CLEANER
from tests.kafka.proxy import KafkaProxy
from tests.kafka_launcher.launcher import KafkaCluster
from tests.lengths import SESSION_SECONDS
from tests.process import ServiceProcess
from topics.catalog import CHANGELOG

BROKERS = 3
MODEL = "sed-mini"
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

    async def settle(self) -> tuple[float, int]:
        """Start ended nodes, wait until all are ready; return (seconds, number of ended nodes).

        Raises:
            AssertionError: A node does not become ready; includes the end of its log.
        """
        began, ended = time.monotonic(), [process for process in self.processes if not process.running]
        for process in ended:
            await asyncio.to_thread(process.start, 0)
        for process in self.processes:
            await asyncio.to_thread(process.wait_ready, SETTLE_SECONDS)
        return time.monotonic() - began, len(ended)

    def rebuild(self) -> ServiceProcess:
        """Stop all nodes, delete their tables, and return one that has rebuilt them from the changelog."""
        for process in self.processes:
            process.stop()
            for tables in process.data.glob("tables*"):
                shutil.rmtree(tables)
        return self.processes[0].start(SETTLE_SECONDS)


def ready(process: ServiceProcess) -> bool:
    """Return whether a node reports ready."""
    try:
        return httpx2.get(f"{process.url}/readyz", timeout=1).status_code == 200
    except httpx2.TransportError:
        return False


@contextmanager
def scene(directory: Path, nodes: int, **settings: str | int | float) -> Iterator[Scene]:
    """Yield a running scene and remove it afterwards; `settings` are those of the nodes."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(KafkaProxy(BROKERS)) for _ in range(nodes)]
        cluster = stack.enter_context(launched_kafka(BROKERS, [proxy.ports for proxy in proxies], QUICK_CLEANER))
        made = []
        for number, (proxy, doors) in enumerate(zip(proxies, cluster.doors, strict=True)):
            proxy.watch(CHANGELOG)
            proxy.open({door.advertised: door.port for door in doors})
            process = ServiceProcess(
                directory / f"node-{number}",
                **{
                    "broker": f"kafka://{proxy.bootstrap}",
                    # A node fills one partition before the next.
                    "partitions": nodes,
                    "kafka_replication": BROKERS,
                    "kafka_session_seconds": SESSION_SECONDS,
                    "database_url": f"sqlite:///{directory / 'control.db'}",
                    "model": MODEL,
                    "workers": 1,
                    "poll_seconds": 1,
                    **settings,
                },
            )
            made.append(ProxiedNode(process, proxy))
            stack.callback(process.stop)
            # A paused process would not notice a request to stop.
            stack.callback(process.resume)
            process.start(SETTLE_SECONDS)
        yield Scene(cluster, made)
