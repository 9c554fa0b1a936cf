"""Latency: the time from the acknowledgement of a chunk until a waiting reader gets its window."""

from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import audio, processes
from benchmarks.cases.setup import Setup, running_service
from benchmarks.measures import Row, Sample, percentile, value_row
from benchmarks.plans import PacedPlan
from benchmarks.processes import ServerProcess

Bars = tuple[float | None, float | None]

#: Share of the cores used by the service and the broker at half load.
HALF: Final = 0.5
CORES: Final = 2
CALIBRATION_STREAMS: Final = 64
#: Milliseconds, p50 and p99.
BARS: Final[dict[str, Bars]] = {"embedded": (50.0, None), "kafka": (8.0, 25.0)}
HALF_LOAD_BARS: Final[dict[str, Bars]] = {"embedded": (None, None), "kafka": (None, 40.0)}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield rows for one stream on an idle machine, and for many at half load."""
    seconds = setup.size(12, 4)
    for log in setup.logs():
        with running_service(log, model="yamnet") as (server, _):
            run(server, 1, 4)
            alone = run(server, 1, 2 * seconds)
            yield from rows(f"latency, {log}, one stream", alone, BARS[log])
            streams = half_load(run(server, CALIBRATION_STREAMS, 6))
            busy = run(server, streams, seconds)
            yield from rows(f"latency, {log}, {streams} streams", busy, HALF_LOAD_BARS[log])


def run(server: ServerProcess, streams: int, seconds: float) -> Sample:
    return processes.run_load(PacedPlan(server.target(), streams, seconds))


def half_load(sample: Sample) -> int:
    """Return the number of streams that use half of the machine, given the sample's CPU time per window."""
    per_window = (sample.cpu + sample.broker) / sample.done
    return max(1, int(HALF * CORES * audio.SECONDS / per_window))


def rows(name: str, sample: Sample, bars: Bars) -> Iterator[Row]:
    beside = {"CPU of the service, cores": sample.cpu / sample.seconds, "windows": float(sample.done)}
    yield value_row(f"{name}, p50", [median(sample.latencies)], "ms", bars[0], beside)
    yield value_row(f"{name}, p99", [percentile(sample.latencies, 0.99)], "ms", bars[1])
