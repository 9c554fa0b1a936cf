"""Accepted chunks, relative to a bare handler that decodes the same bodies and appends the same bytes."""

from collections.abc import Iterator
from typing import Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, running_log
from benchmarks.measures import Row, ratio_row
from benchmarks.plans import UploadPlan

CONNECTIONS: Final = 32
CHUNKS: Final = 250
BARS: Final = {"embedded": 0.60, "kafka": 0.55}


def measure(setup: Setup) -> Iterator[Row]:
    chunks = setup.size(CHUNKS)
    for log in setup.logs():
        with processes.temporary_directory() as directory, running_log(log) as beside:
            place = beside.settings.get("broker", str(directory / "bare"))
            with (
                processes.service(directory / "data", **beside.settings) as server,
                processes.bare("uploads", directory, place) as bare,
            ):
                server.brokers = bare.brokers = beside.brokers
                plans = (UploadPlan(one.target(), CONNECTIONS, chunks) for one in (server, bare))
                yield ratio_row(f"chunks, {log}", processes.alternate_loads(plans, setup.pairs), "chunks", BARS[log])
