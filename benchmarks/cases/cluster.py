"""Nodes on one Kafka: windows a second of two over one, and what it costs to ask a node that is not the owner.

For the first, each node with its workers is held to half of one core, and the broker and the load have the other cores.
So the nodes are the limit, also on two cores.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import Final

import msgspec

from benchmarks import audio, processes, procfs
from benchmarks.cases import held, scale
from benchmarks.cases.setup import Setup, Variant, running_log
from benchmarks.client import LoadClient
from benchmarks.measures import Row, value_row
from benchmarks.plans import AnyPlan, LivePlan, ReadPlan, Target, UploadPlan
from benchmarks.processes import ServerProcess

SHARE: Final = 0.5
#: Streams of each node, and the chunks of each.
STREAMS: Final = 16
CHUNKS: Final = 60
BAR: Final = 1.8
#: Processor time of both nodes over that of local requests.
READ_BAR: Final = 1.8
CHUNK_BAR: Final = 1.6
CONNECTIONS: Final = 32
READS: Final = 500
UPLOADS: Final = 150
#: Windows of a read.
WINDOWS: Final = 10
#: Time for partitions to be assigned after a node has joined.
SETTLE_SECONDS: Final = 10.0

Start = Callable[[str], AbstractContextManager[ServerProcess]]


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row of throughput, and one for reads and for chunks that are forwarded."""
    if not setup.kafka:
        return
    if held.can_hold():
        yield _throughput(setup)
    with _cluster(Variant("sed_mini", "kafka", 2)) as start, start("one") as one, start("two") as two:
        time.sleep(SETTLE_SECONDS)
        yield from _forwarded(setup, one, two)


@contextmanager
def _cluster(variant: Variant) -> Iterator[Start]:
    """Yield what starts a node of a name."""
    with processes.temporary_directory() as directory, running_log("kafka") as beside:
        settings = {**beside.settings, **variant.settings, "database_url": f"sqlite:///{directory / 'control.db'}"}

        def start(name: str) -> AbstractContextManager[ServerProcess]:
            return processes.service(directory / name, workers="1", **settings)

        yield start


def _throughput(setup: Setup) -> Row:
    rates: dict[int, list[float]] = {1: [], 2: []}
    with _apart() as core, _cluster(Variant("yamnet", "kafka", 16)) as start, start("one") as one:
        for number in range(setup.pairs):
            rates[1].append(_rate(setup, core, one))
            with start(f"two-{number}") as two:
                time.sleep(SETTLE_SECONDS)
                rates[2].append(_rate(setup, core, one, two))
            time.sleep(SETTLE_SECONDS)
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    beside = {f"windows a second, {count} nodes": median(measured) for count, measured in rates.items()}
    name = "cluster, yamnet, windows a second with two nodes over one"
    return Row(name, median(ratios), min(ratios), max(ratios), bar=BAR, beside=beside)


@contextmanager
def _apart() -> Iterator[list[int]]:
    """Leave this process, and those that it starts, all cores but one, which is yielded."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    try:
        yield cores[:1]
    finally:
        os.sched_setaffinity(0, cores)


def _rate(setup: Setup, core: list[int], *nodes: ServerProcess) -> float:
    """Return the windows a second of streams at full speed, a load process for each node."""
    for node in nodes:
        scale.pin(node, core)
    plans = [LivePlan(node.target(), STREAMS, setup.size(CHUNKS), sockets=True) for node in nodes]
    with (
        held.held([procfs.descendants(node.pid) for node in nodes], SHARE),
        ThreadPoolExecutor(len(nodes)) as pool,
    ):
        list(pool.map(processes.run_load, plans))
        return sum(sample.per_second for sample in pool.map(processes.run_load, plans))


def _forwarded(setup: Setup, owner: ServerProcess, other: ServerProcess) -> Iterator[Row]:
    """Compare requests for sessions of one node through the other node with those to it."""
    own, via = (msgspec.structs.replace(node.target(), pids=(owner.pid, other.pid)) for node in (owner, other))

    def row(name: str, plans: Iterable[AnyPlan], bar: float) -> Row:
        pairs = processes.alternate_loads(plans, setup.pairs)
        ratios = [local.per_cpu / away.per_cpu for away, local in pairs]
        costs = {"us": 1e6 / pairs[-1][0].per_cpu, "us at the owner": 1e6 / pairs[-1][1].per_cpu}
        return value_row(f"cluster, {name} through another node over local", ratios, "ratio", bar, costs)

    path = f"/audio_sessions/{asyncio.run(_session(own))}/status?count={WINDOWS}"
    reads = setup.size(READS)
    yield row("status reads", [ReadPlan(to, CONNECTIONS, (path,), reads) for to in (via, own)], READ_BAR)
    chunks = setup.size(UPLOADS)
    uploads = [UploadPlan(own, CONNECTIONS, chunks, via) for via in (other.port, None)]
    yield row("chunks", uploads, CHUNK_BAR)


async def _session(target: Target) -> str:
    """Return a new session of a node that has windows: a node opens sessions in its own partitions."""
    client = await LoadClient.connect(target)
    session = await client.create("stream")
    for parts in client.uploads(audio.chunks(0), WINDOWS + 1):
        await client.ask(*parts)
    while await client.windows(WINDOWS - 1) < 1:
        pass
    client.connection.close()
    return session
