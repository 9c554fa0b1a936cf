"""Throughput of lanes, with the process of each loop held to a small share of a core.

So the loops are the limit, also on two cores, as they are on a large machine: the rows show whether lanes get in each
other's way. It needs the right to make a group for processor time (version 1 of control groups).
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, Sample
from benchmarks.plans import LivePlan

GROUPS: Final = Path("/sys/fs/cgroup/cpu")
PERIOD_US: Final = 10_000
SHARE: Final = 0.15
#: Streams of each lane.
STREAMS: Final = 24
CHUNKS: Final = 100
VARIANT: Final = Variant("sed_mini", "embedded", 16)
#: By lanes, the windows a second over those of one lane.
BARS: Final = {2: 1.9, 4: 3.6}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each number of lanes, at full speed by sockets."""
    if not can_hold():
        return
    runs = [{lanes: _run(setup, lanes) for lanes in (1, *BARS)} for _ in range(setup.pairs)]
    for lanes, bar in BARS.items():
        ratios = [run[lanes].per_second / run[1].per_second for run in runs]
        beside = {
            f"windows a second, {count} lanes": median(run[count].per_second for run in runs) for count in (1, lanes)
        }
        beside["cores of the service"] = median(run[lanes].cpu / run[lanes].seconds for run in runs)
        name = f"held, {VARIANT}, windows a second with {lanes} lanes over one"
        yield Row(name, median(ratios), min(ratios), max(ratios), bar=bar, beside=beside)


def can_hold() -> bool:
    """Return whether groups for processor time can be made; say so if not."""
    if can := os.access(GROUPS / "cpu.cfs_quota_us", os.W_OK):
        return can
    print(f"what needs held processes is left out: no group can be made in {GROUPS}", file=sys.stderr)
    return False


def _run(setup: Setup, lanes: int) -> Sample:
    with (
        running_service(lanes=str(lanes), **VARIANT.settings) as (server, _),
        held([[pid] for pid in server.lanes()], SHARE),
    ):
        plan = LivePlan(server.target(), STREAMS * lanes, setup.size(CHUNKS), sockets=True)
        processes.run_load(plan)
        return processes.run_load(plan)


@contextmanager
def held(families: Iterable[Collection[int]], share: float) -> Iterator[None]:
    """Hold all threads of the processes of each family together, but not their other children, to a share of a core."""
    groups = []
    for family in families:
        group = GROUPS / f"earshot-{min(family)}"
        group.mkdir()
        groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
        for thread in (thread for pid in family for thread in procfs.thread_seconds(pid)):
            (group / "tasks").write_text(str(thread))
    try:
        yield
    finally:
        for group in groups:
            for task in (group / "tasks").read_text().split():
                (GROUPS / "tasks").write_text(task)
            group.rmdir()
