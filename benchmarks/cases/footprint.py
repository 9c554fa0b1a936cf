"""Absolute figures of the service: bytes written, memory, and start time."""

import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import audio, processes, procfs
from benchmarks.cases.setup import Setup, running_service
from benchmarks.measures import Row, value_row
from benchmarks.plans import IdlePlan, LivePlan

STREAMS: Final = 32
#: 128 MB of audio: more than the write buffers hold, so that flushes and compactions count too.
CHUNKS: Final = 250
BASE: Final = 1_000
MORE: Final = 20_000
START_BAR_SECONDS: Final = 4.0
#: The memory of the former single process with its decoders' zygote, 368 MB, plus 20 MB.
IDLE_BAR_MB: Final = 388.0
WORKER_BAR_MB: Final = 60.0
#: Additional workers that are measured.
FURTHER: Final = 4
#: Time for workers to start or finish.
REST_SECONDS: Final = 2.0
MB: Final = 1e6


def written(setup: Setup) -> Iterator[Row]:
    """Yield the bytes written to disk per byte of audio accepted from live streams."""
    chunks = setup.size(CHUNKS)
    with running_service() as (server, _):
        before = procfs.written_bytes(server.pid)
        processes.run_load(LivePlan(server.target(), STREAMS, chunks))
        os.sync()
        accepted = STREAMS * chunks * audio.CHUNK_BYTES
        spent = procfs.written_bytes(server.pid) - before
    yield value_row("bytes written per accepted byte", [spent / accepted], "x", None, {"accepted MB": accepted / MB})


def memory(setup: Setup) -> Iterator[Row]:
    """Yield the growth of memory per session, from 1,000 to 20,000 idle sessions, and per worker."""
    more = setup.size(MORE - BASE)
    with running_service() as (server, _):
        processes.run_load(IdlePlan(server.target(), BASE))
        first = procfs.resident_bytes(server.pid)
        processes.run_load(IdlePlan(server.target(), more))
        last = procfs.resident_bytes(server.pid)
    beside = {"MB at 1,000": first / MB, f"MB at {BASE + more:,}": last / MB}
    yield value_row("memory per idle session", [(last - first) / more / 1024], "KiB", None, beside)
    few, many = _after_work(1), _after_work(1 + FURTHER)
    beside = {"MB with 1": few, f"MB with {1 + FURTHER}": many}
    yield value_row("memory per further worker", [(many - few) / FURTHER], "MB", WORKER_BAR_MB, beside)


def _after_work(workers: int) -> float:
    """Return the memory, in MB, of all processes of a service after each worker has had work."""
    with running_service(workers=str(workers)) as (server, _):
        processes.run_load(LivePlan(server.target(), STREAMS, 16))
        time.sleep(REST_SECONDS)
        return procfs.family_bytes(server.pid) / MB


def start(setup: Setup) -> Iterator[Row]:
    """Yield the time from start to ready on an empty directory, and the memory of the idle service."""
    seconds, all_of_it, alone = [], [], []
    for _ in range(setup.pairs):
        began = time.perf_counter()
        with running_service() as (server, _):
            seconds.append(time.perf_counter() - began)
            time.sleep(REST_SECONDS)
            all_of_it.append(procfs.family_bytes(server.pid) / MB)
            alone.append(procfs.proportional_bytes(server.pid) / MB)
    yield value_row("start to ready, empty directory", seconds, "s", START_BAR_SECONDS)
    beside = {"MB of the first process": median(alone)}
    yield value_row("memory of all processes, idle", all_of_it, "MB", IDLE_BAR_MB, beside)
