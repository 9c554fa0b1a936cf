"""Live streams by socket: windows over bare, over the same by requests, many streams, delays, and idle sockets."""

import resource
import selectors
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Final, cast
from urllib.parse import urlencode

from benchmarks import audio, processes, procfs
from benchmarks.cases import crowd, paced, windows
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, Sample, percentile, value_row
from benchmarks.plans import LivePlan, Target
from benchmarks.sockets import PONG, opening

WINDOWS_BARS: Final = {
    Variant("yamnet", "embedded"): 0.93,
    Variant("sed_mini", "embedded"): 0.66,
    Variant("yamnet", "kafka", 16): 0.92,
    Variant("sed_mini", "kafka", 16): 0.64,
}
CROWD_BARS: Final = {Variant("sed_mini", "embedded"): 0.92}
COST_BAR: Final = 0.45
#: Milliseconds, p50 and p99.
DELAY_BARS: Final = (8.0, 25.0)
IDLE_SOCKETS: Final = 5_000
#: KiB of each, and the p99 of others over theirs alone.
IDLE_BARS: Final = (20.0, 1.2)


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the rows of sockets; those at the pace of real time that `paced` has are its own."""
    for variant, bar in WINDOWS_BARS.items():
        if variant.log in setup.logs():
            yield windows.row(setup, variant, bar, sockets=True)
    for variant, bar in CROWD_BARS.items():
        yield crowd.row(setup, variant, bar, sockets=True)
    yield from _against_requests(setup)
    yield from _idle(setup)


def _against_requests(setup: Setup) -> Iterator[Row]:
    """Yield what a window costs outside of inference by socket over by requests, and the delay of its event."""
    variant = Variant("sed_mini", "embedded")
    with running_service(**variant.settings) as (server, _):
        chunks = setup.size(windows.CHUNKS[variant.model])
        plans = (LivePlan(server.target(), windows.STREAMS, chunks, sockets=sockets) for sockets in (True, False))
        pairs = processes.alternate_loads(plans, setup.pairs)
        paced_ones = [_paced(server.target(), setup) for _ in range(setup.pairs)]
    bare = processes.run_bare("windows", variant.model, str(windows.STREAMS), str(chunks))
    ratios = [(1 / ours.per_cpu - 1 / bare.per_cpu) / (1 / other.per_cpu - 1 / bare.per_cpu) for ours, other in pairs]
    beside = {
        "us a window by socket": median(1e6 / ours.per_cpu for ours, _ in pairs),
        "by requests": median(1e6 / other.per_cpu for _, other in pairs),
        "bare": 1e6 / bare.per_cpu,
    }
    name = f"live, {variant}, a window outside of inference, sockets over requests"
    yield value_row(name, ratios, "ratio", COST_BAR, beside)
    for share, bar in zip((0.5, 0.99), DELAY_BARS, strict=True):
        delays = [percentile(sample.latencies, share) for sample in paced_ones]
        yield value_row(f"live, {paced.STREAMS} sockets, message to event, p{100 * share:.0f}", delays, "ms", bar)


def _paced(target: Target, setup: Setup) -> Sample:
    return paced.run_live(target, paced.STREAMS, setup.size(paced.SECONDS, 4), sockets=True)


def _idle(setup: Setup) -> Iterator[Row]:
    """Yield the memory of an idle socket, and what many of them do to the delays of others."""
    count = setup.size(IDLE_SOCKETS)
    settings = {"connections_per_address": "10000", **Variant("sed_mini", "embedded").settings}
    with running_service(**settings) as (server, _):
        target = server.target()
        alone = [percentile(_paced(target, setup).latencies, 0.99) for _ in range(setup.pairs + 1)][1:]
        with _idle_sockets(target, 100):
            before = procfs.resident_bytes(server.pid)
            with _idle_sockets(target, count):
                each = (procfs.resident_bytes(server.pid) - before) / count / 1024
                beside = [percentile(_paced(target, setup).latencies, 0.99) for _ in range(setup.pairs)]
    yield value_row(f"live, memory of an idle socket of {count:,}", [each], "KiB", IDLE_BARS[0])
    ratios = [busy / median(alone) for busy in beside]
    p99 = {"p99 ms alone": median(alone), "beside": median(beside)}
    name = f"live, p99 beside {count:,} idle sockets over alone"
    yield value_row(name, ratios, "ratio", IDLE_BARS[1], p99)


@contextmanager
def _idle_sockets(target: Target, count: int) -> Iterator[None]:
    """Hold listening sockets of one session, which answer pings and nothing else."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # With a request_id all join one session.
    query = urlencode({"content_type": audio.CONTENT_TYPE, "mode": "listen", "request_id": "idle-sockets"})
    with selectors.DefaultSelector() as pinged, ExitStack() as held:
        ended = threading.Event()

        def answer() -> None:
            while not ended.is_set():
                for key, _ in pinged.select(0.2):
                    listener = cast(socket.socket, key.fileobj)
                    assert listener.recv(65536), "an idle socket was ended"
                    listener.sendall(PONG)

        for _ in range(count):
            listener = held.enter_context(socket.create_connection(("127.0.0.1", target.port)))
            listener.sendall(opening(target, f"/api/v1/socket?{query}"))
            listener.recv(65536)
            pinged.register(listener, selectors.EVENT_READ)
        answering = held.enter_context(ThreadPoolExecutor(1)).submit(answer)
        # Raises the error of the thread.
        held.callback(answering.result)
        held.callback(ended.set)
        yield
