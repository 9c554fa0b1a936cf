"""Windows from end to end through HTTP, over ONNX Runtime with its front end in a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, running_log
from benchmarks.measures import Row, alternate, ratio_row
from benchmarks.plans import LivePlan

STREAMS: Final = 32
CHUNKS: Final = 80
BARS: Final = {"embedded": 0.70, "kafka": 0.55}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each log."""
    chunks = setup.size(CHUNKS)
    for log in setup.logs():
        with (
            processes.temporary_directory() as directory,
            running_log(log) as beside,
            processes.service(directory / "data", **beside.settings) as server,
        ):
            plan = LivePlan(server.target(beside.brokers), STREAMS, chunks)
            pairs = alternate(
                lambda plan=plan: processes.run_load(plan),  # type: ignore[misc]
                lambda: processes.run_bare("windows", str(STREAMS), str(chunks)),
                setup.pairs,
            )
            yield ratio_row(f"windows, {log}", pairs, "windows", BARS[log])
