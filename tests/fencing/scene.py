"""Three brokers, and nodes that each talk to them through a proxy of their own."""

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
#: A node that does not get ready has this long, since two cores may be busy.
SETTLE_SECONDS = 150.0


@dataclass
class ProxiedNode:
    """A node, and the proxy between it and the brokers."""

    process: ServiceProcess
    proxy: KafkaProxy


@dataclass
class Scene:
    """All that runs."""

    cluster: KafkaCluster
    nodes: list[ProxiedNode]

    @property
    def processes(self) -> list[ServiceProcess]:
        return [node.process for node in self.nodes]

    async def settle(self) -> tuple[float, int]:
        """Start nodes that ended, wait until all are ready; return how many seconds that took and how many had ended.

        Raises:
            AssertionError: a node does not get ready; with the end of its log.
        """
        began, ended = time.monotonic(), [process for process in self.processes if not process.running]
        for process in ended:
            await asyncio.to_thread(process.start, 0)
        for process in self.processes:
            await asyncio.to_thread(process.wait_ready, SETTLE_SECONDS)
        return time.monotonic() - began, len(ended)

    def rebuild(self) -> ServiceProcess:
        """Stop all nodes, delete their tables, and return one that has rebuilt them from the changelog alone."""
        for process in self.processes:
            process.stop()
            for tables in process.data.glob("tables*"):
                shutil.rmtree(tables)
        return self.processes[0].start(SETTLE_SECONDS)


def ready(process: ServiceProcess) -> bool:
    """Tell whether a node says that it serves."""
    try:
        return httpx2.get(f"{process.url}/readyz", timeout=1).status_code == 200
    except httpx2.TransportError:
        return False


@contextmanager
def scene(directory: Path, nodes: int, **settings: str | int | float) -> Iterator[Scene]:
    """Yield a running scene, gone afterwards; `settings` are those of the nodes."""
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
                    # A node fills one partition before it begins another.
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
            # A paused process would not notice that it is to stop.
            stack.callback(process.resume)
            process.start(SETTLE_SECONDS)
        yield Scene(cluster, made)
