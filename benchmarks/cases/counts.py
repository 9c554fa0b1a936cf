"""What a window of a live stream costs in things that can be counted. On a loaded machine more windows share each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import counted, processes, procfs
from benchmarks.cases import paced
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from benchmarks.processes import ServerProcess

#: Seconds of two runs, each with new sessions: their difference has no openings.
SHORT: Final = 4
LONG: Final = 16

#: By streams, the most wake-ups of the loop's thread, records and writes of RocksDB for each window.
BARS: Final[dict[int, tuple[float, float, float]]] = {100: (1.0, 3.0, 1.5), 400: (0.4, 3.0, 1.5)}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield three rows for each number of streams, by live sockets with the small model."""
    for streams, bars in BARS.items():
        with processes.temporary_directory() as directory:
            file = directory / "counts"
            file.write_bytes(bytes(counted.COUNTS.size))
            command = ("benchmarks.counted", str(file))
            with processes.service(directory / "data", command, model="sed-mini") as server:
                short, long = (_run(server, file, streams, setup.size(length, 2)) for length in (SHORT, LONG))
        wakes, records, log, tables = (
            (after - before) / (long[0] - short[0]) for after, before in zip(long[1:], short[1:], strict=True)
        )
        name = f"paced, sed_mini, sockets, {streams} streams, for each window"
        yield value_row(f"{name}: wake-ups of the loop", [wakes], "", bars[0])
        yield value_row(f"{name}: records appended", [records], "", bars[1])
        yield value_row(
            f"{name}: writes of RocksDB", [log + tables], "", bars[2], {"of the log": log, "of tables": tables}
        )


def _run(server: ServerProcess, file: Path, streams: int, seconds: float) -> tuple[int, ...]:
    """Return the windows of a run and what was counted meanwhile."""
    before = procfs.wake_ups(server.pid), *counted.counts(file)
    done = paced.run_live(server.target(), streams, seconds, sockets=True).done
    after = procfs.wake_ups(server.pid), *counted.counts(file)
    return done, *(now - then for now, then in zip(after, before, strict=True))
