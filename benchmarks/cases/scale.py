"""Cost of a window to the event loop's process and to the workers, and whether the two figures predict the throughput.

`docs/scale.md` derives the capacity of larger machines from them. On a machine with more than two cores the service is
pinned to 1, 2, 4 and so on of them, and two are left for the load.
"""

import os
from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases import windows
from benchmarks.cases.setup import Setup, Variant, running_service
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
    most = max(1, len(cores) - 2)
    counts = sorted({most, *(1 << power for power in range(most.bit_length()))})
    loop, work, busy = [], [], []
    rates: dict[int, list[float]] = {count: [] for count in counts}
    with running_service(**variant.settings) as (server, _):
        plan = LivePlan(server.target(), STREAMS, setup.size(windows.CHUNKS[variant.model]), sockets=True)
        processes.run_load(plan)
        for _ in range(setup.pairs):
            own = sum(procfs.thread_seconds(server.pid).values())
            sample = processes.run_load(plan)
            own = sum(procfs.thread_seconds(server.pid).values()) - own
            loop.append(1e6 * own / sample.done)
            work.append(1e6 * (sample.cpu - own) / sample.done)
            busy.append((sample.cpu + sample.load) / sample.seconds / len(cores))
            for count in counts:
                pin(server, cores[:count])
                rates[count].append(processes.run_load(plan).per_second)
            pin(server, cores)
    name = f"scale, {variant}"
    yield value_row(f"{name}, process of the loop", loop, "us a window")
    yield value_row(f"{name}, workers", work, "us a window")
    beside = {f"share of {len(cores)} cores in use, with the load": median(busy)}
    for count, measured in rates.items():
        foretold = min(1e6 * count / (median(loop) + median(work)), 1e6 / median(loop))
        ratios = [rate / foretold for rate in measured]
        what = f"{name}, windows a second on {count} core{'s' if count > 1 else ''} over those foretold"
        rate = {"windows a second": median(measured)}
        yield Row(what, median(ratios), min(ratios), max(ratios), beside=beside | rate)


def pin(server: ServerProcess, cores: list[int]) -> None:
    """Restrict all threads of the service to some cores."""
    for process in procfs.descendants(server.pid):
        for thread in procfs.thread_seconds(process):
            os.sched_setaffinity(thread, cores)
