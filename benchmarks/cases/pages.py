"""The last pages of a session with a million windows, relative to a session with a thousand."""

from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import filling, processes
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from benchmarks.plans import ReadPlan, Target

SHORT: Final = 1_000
LONG: Final = 1_000_000
PAGE: Final = 100
BAR: Final = 1.5


def measure(setup: Setup) -> Iterator[Row]:
    """Yield one row. Pages begin at all offsets in the last thousand windows, so that few are in the render cache."""
    sizes = setup.size(LONG), SHORT
    with processes.temporary_directory() as directory:
        sessions = filling.fill(directory / "data", sizes)
        with processes.service(directory / "data") as server:
            target = server.target()
            plans = (last_pages(target, session, windows) for session, windows in zip(sessions, sizes, strict=True))
            pairs = processes.alternate_loads(plans, setup.pairs)
    ratios = [small.per_cpu / large.per_cpu for large, small in pairs]
    beside = {
        "p50 ratio": median(median(large.latencies) / median(small.latencies) for large, small in pairs),
        "p50 ms at 1,000,000": median(median(large.latencies) for large, _ in pairs),
        "p50 ms at 1,000": median(median(small.latencies) for _, small in pairs),
    }
    yield value_row("last page, CPU a read", ratios, "ratio", BAR, beside)


def last_pages(target: Target, session: str, windows: int) -> ReadPlan:
    """Return a plan for reading pages within the last thousand windows."""
    first = windows - SHORT
    paths = (f"/audio_sessions/{session}/status?offset={first + at}&count={PAGE}" for at in range(SHORT - PAGE + 1))
    return ReadPlan(target, 1, tuple(paths), 3)
