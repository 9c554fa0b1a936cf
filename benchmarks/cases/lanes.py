"""What lanes cost: processor time of a window with several of them over one, and memory of a further lane."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, Sample, value_row
from benchmarks.plans import LivePlan, PacedPlan
from benchmarks.processes import ServerProcess

#: Streams of each lane: with fewer a window costs more, however many lanes there are.
STREAMS: Final = 24
PARTITIONS: Final = 16
CHUNKS: Final = 200
SECONDS: Final = 20.0
COST_BARS: Final = {2: 1.05, 4: 1.10}
MEMORY_BAR_MB: Final = 110.0
MODELS: Final = (Variant("sed_mini", "embedded", PARTITIONS), Variant("yamnet", "embedded", PARTITIONS))


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each model, way of sending, and number of lanes; and one of memory."""
    for variant in MODELS:
        with ExitStack() as stack:
            servers = {
                lanes: stack.enter_context(running_service(lanes=str(lanes), **variant.settings))[0]
                for lanes in (1, *COST_BARS)
            }
            for sockets in (True, False):
                for real_time in (False, True):
                    yield from _costs(setup, variant, servers, sockets, real_time)
    yield _memory()


def _costs(
    setup: Setup, variant: Variant, servers: dict[int, ServerProcess], sockets: bool, real_time: bool
) -> Iterator[Row]:
    def run(lanes: int) -> Sample:
        target, streams = servers[lanes].target(), STREAMS * lanes
        if real_time:
            return processes.run_load(PacedPlan(target, streams, SECONDS, sockets=sockets))
        return processes.run_load(LivePlan(target, streams, setup.size(CHUNKS // lanes), sockets=sockets))

    for lanes in servers:
        run(lanes)
    samples = [{lanes: run(lanes) for lanes in servers} for _ in range(setup.pairs)]
    way = f"{'sockets' if sockets else 'requests'}, {'real time' if real_time else 'full speed'}"
    for lanes, bar in COST_BARS.items():
        ratios = [sample[1].per_cpu / sample[lanes].per_cpu for sample in samples]
        costs = {f"ms a window, {count} lanes": 1e3 / samples[-1][count].per_cpu for count in (1, lanes)}
        yield value_row(f"lanes, {variant}, {way}: cost with {lanes} over one", ratios, "ratio", bar, costs)


def _memory() -> Row:
    """Return the memory that a second lane adds to an idle service."""
    used = {}
    for lanes in (1, 2, 3):
        with running_service(lanes=str(lanes), partitions=str(PARTITIONS)) as (server, _):
            used[lanes] = procfs.family_bytes(server.pid) / 1e6
    return value_row("memory of a further lane", [used[3] - used[2]], "MB", MEMORY_BAR_MB, {"MB with one": used[1]})
