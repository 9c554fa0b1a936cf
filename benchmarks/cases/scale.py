"""Cost of a window to the event loop's process and to the workers, and whether the two figures predict the throughput.

`docs/scale.md` derives the capacity of larger machines from them.
"""

import os
from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases import windows
from benchmarks.cases.setup import Setup, Variant
from benchmarks.measures import Row, value_row
from benchmarks.plans import LivePlan
from benchmarks.processes import ServerProcess

STREAMS: Final = 64
VARIANTS: Final = (Variant("yamnet", "embedded"), Variant("sed_mini", "embedded"))


def measure(setup: Setup) -> Iterator[Row]:
    """Yield three rows per model, by sockets on the embedded log."""
    for variant in VARIANTS:
        yield from _rows(setup, variant)


def _rows(setup: Setup, variant: Variant) -> Iterator[Row]:
    cores = sorted(os.sched_getaffinity(0))
    loop, work, busy, one = [], [], [], []
    with (
        processes.temporary_directory() as directory,
        processes.service(directory / "data", **variant.settings) as server,
    ):
        plan = LivePlan(server.target(), STREAMS, setup.size(windows.CHUNKS[variant.model]), sockets=True)
        processes.run_load(plan)
        for _ in range(setup.pairs):
            own = sum(procfs.thread_seconds(server.pid).values())
            sample = processes.run_load(plan)
            own = sum(procfs.thread_seconds(server.pid).values()) - own
            loop.append(1e6 * own / sample.done)
            work.append(1e6 * (sample.cpu - own) / sample.done)
            busy.append((sample.cpu + sample.load) / sample.seconds / len(cores))
            _pin(server, cores[:1])
            alone = processes.run_load(plan)
            one.append(alone.per_second * (loop[-1] + work[-1]) / 1e6)
            _pin(server, cores)
    name = f"scale, {variant}"
    yield value_row(f"{name}, process of the loop", loop, "us a window")
    yield value_row(f"{name}, workers", work, "us a window")
    beside = {f"share of {len(cores)} cores in use, with the load": median(busy)}
    what = f"{name}, windows a second on one core over those foretold"
    yield Row(what, median(one), min(one), max(one), beside=beside)


def _pin(server: ServerProcess, cores: list[int]) -> None:
    """Restrict all threads of the service to some cores."""
    for process in procfs.descendants(server.pid):
        for thread in procfs.thread_seconds(process):
            os.sched_setaffinity(thread, cores)
