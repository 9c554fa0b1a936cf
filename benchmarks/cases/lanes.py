"""What lanes cost: processor time of a window with several of them over one, that of a hop, and memory of a lane."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, Sample, value_row
from benchmarks.plans import AnyPlan, LivePlan, PacedPlan, TurnsPlan
from benchmarks.processes import ServerProcess

#: Streams of each lane: with fewer a window costs more, however many lanes there are.
STREAMS: Final = 24
PARTITIONS: Final = 16
CHUNKS: Final = 200
#: How much longer sockets stream than others, so that their opening costs nothing in comparison.
LONG: Final = 4
SECONDS: Final = 20.0
COST_BARS: Final = {2: 1.05, 4: 1.10}
#: Processor time over local: of a PUT that comes to another lane than that of its session; of a window of a socket that
#: was handed over.
HOP_BAR: Final = 1.6
GIVEN_BAR: Final = 1.02
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
    yield from _hops(setup)
    yield _memory()


def _costs(
    setup: Setup, variant: Variant, servers: dict[int, ServerProcess], sockets: bool, real_time: bool
) -> Iterator[Row]:
    def run(lanes: int) -> Sample:
        target, streams = servers[lanes].target(), STREAMS * lanes
        if real_time:
            return processes.run_load(PacedPlan(target, streams, SECONDS, sockets=sockets))
        return processes.run_load(LivePlan(target, streams, setup.size(CHUNKS), sockets=sockets))

    for lanes in servers:
        run(lanes)
    samples = [{lanes: run(lanes) for lanes in servers} for _ in range(setup.pairs)]
    way = f"{'sockets' if sockets else 'requests'}, {'real time' if real_time else 'full speed'}"
    for lanes, bar in COST_BARS.items():
        ratios = [sample[1].per_cpu / sample[lanes].per_cpu for sample in samples]
        costs = {f"ms a window, {count} lanes": 1e3 / samples[-1][count].per_cpu for count in (1, lanes)}
        yield value_row(f"lanes, {variant}, {way}: cost with {lanes} over one", ratios, "ratio", bar, costs)


def _hops(setup: Setup) -> Iterator[Row]:
    """Compare two lanes with a partition each: all requests or sockets came to the other lane, and none did."""
    with running_service(lanes="2", partitions="2", **Variant("sed_mini", "embedded").settings) as (server, _):

        def row(name: str, plan: Callable[[bool], AnyPlan], bar: float) -> Row:
            pairs = processes.alternate_loads((plan(True), plan(False)), setup.pairs)
            ratios = [local.per_cpu / away.per_cpu for away, local in pairs]
            costs = {"us": 1e6 / pairs[-1][0].per_cpu, "us on one lane": 1e6 / pairs[-1][1].per_cpu}
            return value_row(f"lanes, {name}", ratios, "ratio", bar, costs)

        target, chunks = server.target(), setup.size(CHUNKS)
        turns = partial(TurnsPlan, target, STREAMS, chunks)
        sockets = partial(LivePlan, target, 2 * STREAMS, LONG * chunks, sockets=True)
        yield row("PUTs that go to another lane each over local ones", lambda away: turns(away=away), HOP_BAR)
        yield row("windows of sockets that were handed over", lambda away: sockets(away=away), GIVEN_BAR)


def _memory() -> Row:
    """Return the memory that a second lane adds to an idle service."""
    used = {}
    for lanes in (1, 2, 3):
        with running_service(lanes=str(lanes), partitions=str(PARTITIONS)) as (server, _):
            used[lanes] = procfs.family_bytes(server.pid) / 1e6
    return value_row("memory of a further lane", [used[3] - used[2]], "MB", MEMORY_BAR_MB, {"MB with one": used[1]})
