"""Live streams that lanes carry in time, with the process of each loop held to a small share of a core.

So the loops are the limit, also on two cores, as they are on a large machine: the rows show whether lanes get in each
other's way. It needs the right to make a group for processor time (version 1 of control groups).
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import procfs
from benchmarks.cases.paced import LIMIT_MS, NEAR, TRIES, carried, run_live
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, Sample

GROUPS: Final = Path("/sys/fs/cgroup/cpu")
PERIOD_US: Final = 10_000
SHARE: Final = 0.15
SECONDS: Final = 12
#: Partitions of each service.
VARIANT: Final = Variant("sed_mini", "embedded", 16)
#: By lanes, the streams over those of one lane.
BARS: Final = {2: 1.9, 4: 3.6}
#: No loop that is held carries so many.
MOST: Final = 400


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each number of lanes."""
    if not os.access(GROUPS / "cpu.cfs_quota_us", os.W_OK):
        print(f"held is left out: no group can be made in {GROUPS}", file=sys.stderr)
        return
    one, _, _ = _carried(setup, 1)
    for lanes, bar in BARS.items():
        largest, late, sample = _carried(setup, lanes)
        beside = {"streams": float(largest), "too many": float(late), "with one lane": float(one)}
        if sample is not None:
            beside["cores of the service"] = sample.cpu / sample.seconds
            beside["cores of the load"] = sample.load / sample.seconds
        name = f"held, {VARIANT}, streams with p99 <= {LIMIT_MS:.0f} ms, {lanes} lanes over one"
        yield Row(name, largest / one, largest / one, late / one, bar=bar, beside=beside)


def _carried(setup: Setup, lanes: int) -> tuple[int, int, Sample | None]:
    """Return the largest number of streams in time, the smallest that was late, and the run of the first."""

    def run(streams: int) -> Sample:
        with running_service(lanes=str(lanes), **VARIANT.settings) as (server, _), held(server.lanes(), SHARE):
            return run_live(server.target(), streams, setup.size(SECONDS, 4), sockets=True)

    return carried(run, 8 * lanes, MOST * lanes, TRIES, NEAR)


@contextmanager
def held(pids: Iterable[int], share: float) -> Iterator[None]:
    """Hold all threads of each process, but not its children, to a share of a core."""
    groups = []
    for pid in pids:
        group = GROUPS / f"earshot-{pid}"
        group.mkdir()
        groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
        for thread in procfs.thread_seconds(pid):
            (group / "tasks").write_text(str(thread))
    try:
        yield
    finally:
        for group in groups:
            for task in (group / "tasks").read_text().split():
                (GROUPS / "tasks").write_text(task)
            group.rmdir()
