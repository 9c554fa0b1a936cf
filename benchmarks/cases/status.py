"""Status reads, relative to a bare handler that returns the same bytes."""

from collections.abc import Iterator
from typing import Final

from benchmarks import filling, processes
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, ratio_row
from benchmarks.plans import ReadPlan

CONNECTIONS: Final = 32
WINDOWS: Final = 1_034
BAR: Final = 0.40


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for a poll of the newest ten windows, and one for a full page."""
    with processes.temporary_directory() as directory:
        (session,) = filling.fill(directory / "data", [WINDOWS])
        path = f"/audio_sessions/{session}/status"
        polls = ("newest 10", f"{path}?offset={WINDOWS - 10}", 1500), ("page of 1024", path, 800)
        with processes.service(directory / "data") as server:
            for name, path, rounds in polls:
                page = directory / "page"
                page.write_bytes(processes.get(server.port, path))
                with processes.bare("reads", directory, str(page)) as bare:
                    count = setup.size(rounds)
                    plans = (ReadPlan(one.target(), CONNECTIONS, (path,), count) for one in (server, bare))
                    yield ratio_row(f"status, {name}", processes.alternate_loads(plans, setup.pairs), "reads", BAR)
