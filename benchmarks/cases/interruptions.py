"""What the streams of a machine with two lanes notice when one lane is killed, and when all are restarted in turn."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import Final

from benchmarks import audio, processes
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, percentile, value_row
from benchmarks.plans import PacedPlan
from benchmarks.processes import KEY, BenchmarkError, ServerProcess
from earshot_client import AsyncClient, WindowHeard

LANES: Final = 2
#: A model with which two cores carry twice as many streams: what has waited must not wait again, for the models.
MODEL: Final = Variant("sed_mini", "embedded").settings
#: Streams of each lane beside a kill, and of the machine at a restart.
STREAMS: Final = 24
SOCKETS: Final = 200
SECONDS: Final = 20.0
#: Seconds from the begin of a run to the kill.
KILL_AT: Final = 10.0
WARM: Final = 2.0
P99_BAR: Final = 1.2
READY_BAR_SECONDS: Final = 3.0
PAUSE_BAR_SECONDS: Final = 2.0
RESTART_SECONDS: Final = 120.0


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the rows of a kill, and that of a restart."""
    yield from _kills(setup)
    yield _restarts(setup)


def _kills(setup: Setup) -> Iterator[Row]:
    """Compare the streams of lane 0 while those of lane 1 go on, and while lane 1 is killed."""
    ratios, ready, before, after = [], [], [], []
    for _ in range(setup.pairs):
        # A partition for each lane, so that the streams of each are known.
        with (
            running_service(lanes=str(LANES), partitions=str(LANES), **MODEL) as (server, _),
            ThreadPoolExecutor() as pool,
        ):

            def p99(server: ServerProcess = server, pool: ThreadPoolExecutor = pool, kill: bool = False) -> float:
                pool.submit(_quietly, PacedPlan(server.target(), STREAMS, SECONDS, sockets=True, partition=1))
                if kill:
                    pool.submit(lambda: ready.append(_kill(server)))
                plan = PacedPlan(
                    server.target(), STREAMS, SECONDS, from_sent=True, warm=WARM, sockets=True, partition=0
                )
                return percentile(processes.run_load(plan).latencies, 0.99)

            before.append(p99())
            after.append(p99(kill=True))
            ratios.append(after[-1] / before[-1])
    beside = {"p99 ms before": median(before), "p99 ms": median(after)}
    yield value_row("p99 of the streams of the other lane beside a kill, over before", ratios, "ratio", P99_BAR, beside)
    yield value_row("killed lane ready again", ready, "s", READY_BAR_SECONDS)


def _quietly(plan: PacedPlan) -> None:
    with suppress(BenchmarkError):
        processes.run_load(plan)


def _kill(server: ServerProcess) -> float:
    """Kill the second lane after a while; return the seconds until it is ready again."""
    time.sleep(KILL_AT)
    pids = server.lanes()
    os.kill(pids[1], signal.SIGKILL)
    began = time.perf_counter()
    while server.lanes() == pids or processes.get(server.port, "/readyz") != b'{"status":"ok"}':
        time.sleep(0.01)
    return time.perf_counter() - began


def _restarts(setup: Setup) -> Row:
    """Restart all lanes under sockets of the package's client, and look for the longest pause between two windows."""
    sockets, longest, whole = setup.size(SOCKETS), [], []
    for _ in range(setup.pairs):
        with running_service(lanes=str(LANES), log_level="info", project_sockets=str(sockets), **MODEL) as (server, _):
            pauses, seconds = asyncio.run(_stream_through(server, sockets))
        longest.append(max(pauses))
        whole.append(seconds)
    beside = {"sockets": float(sockets), "s for all lanes": median(whole)}
    return value_row("longest pause of a stream at a restart", longest, "s", PAUSE_BAR_SECONDS, beside)


async def _stream_through(server: ServerProcess, count: int) -> tuple[list[float], float]:
    """Return the longest pause between two windows of each socket, in seconds, and those of the whole restart."""
    stopping = asyncio.Event()
    async with AsyncClient(server.url, KEY) as client:
        streams = [
            asyncio.create_task(_stream(client, number * audio.SECONDS / count, stopping)) for number in range(count)
        ]
        await asyncio.sleep(KILL_AT)
        began = time.perf_counter()
        os.kill(server.pid, signal.SIGUSR2)
        async with asyncio.timeout(RESTART_SECONDS):
            while b"service.restarted" not in server.log.read_bytes():  # noqa: ASYNC110 (another process writes it)
                await asyncio.sleep(0.1)
        seconds = time.perf_counter() - began
        await asyncio.sleep(WARM)
        stopping.set()
        return await asyncio.gather(*streams), seconds


async def _stream(client: AsyncClient, delay: float, stopping: asyncio.Event) -> float:
    """Stream in real time; return the longest pause between two windows in seconds.

    Raises:
        BenchmarkError: a window is missing, is there twice, or is out of order.
    """
    await asyncio.sleep(delay)
    heard: list[int] = []
    times: list[float] = []
    sound = audio.chunks(0)

    async def spoken() -> AsyncIterator[bytes]:
        began = time.perf_counter()
        number = 0
        while not stopping.is_set():
            yield sound[number % len(sound)]
            number += 1
            await asyncio.sleep(max(0.0, began + number * audio.SECONDS - time.perf_counter()))

    async with client.socket() as socket:
        events = socket.stream(spoken())
        async for event in events:
            if isinstance(event, WindowHeard):
                heard.append(event.window)
                times.append(time.perf_counter())
    if heard != list(range(socket.next_chunk - 1)):
        raise BenchmarkError(f"{socket.next_chunk} chunks became windows {heard}")
    return max(later - earlier for earlier, later in pairwise(times))
