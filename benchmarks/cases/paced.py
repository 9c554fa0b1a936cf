"""Live streams at the pace of real time: what a window costs, and how many streams have their windows in time.

Each stream sends a chunk each half second, and a reader waits for its next window. The streams' phases are spread
evenly, so nothing comes in groups, as it does at full speed.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from statistics import mean, median
from typing import Final

from benchmarks import audio, processes
from benchmarks.cases import windows
from benchmarks.cases.setup import Setup, Variant, running_log
from benchmarks.measures import Contender, Row, Sample, alternate, bracket, on_every_core, percentile, value_row
from benchmarks.plans import PacedPlan, Target

#: Streams of the row of costs.
STREAMS: Final = 100
#: Seconds of a run, and of its beginning, whose latencies do not count.
SECONDS: Final = 12
WARM: Final = 2.0
#: Most milliseconds from the sending of a chunk until its window is read, at the 99th percentile.
LIMIT_MS: Final = 100.0
#: Steps of the search, each of two or three runs. It ends when the numbers differ by no more than this factor.
TRIES: Final = 7
NEAR: Final = 1.02
#: By variant, the cost of a window over bare, and the streams over those that bare carries.
Bars = dict[Variant, tuple[float | None, float | None]]
BARS: Final[Bars] = {
    Variant("yamnet", "embedded"): (2.0, 0.48),
    Variant("sed_mini", "embedded"): (6.0, 0.16),
    Variant("yamnet", "kafka", 16): (None, 0.48),
    Variant("sed_mini", "kafka", 16): (None, None),
}
SOCKET_BARS: Final[Bars] = {Variant("yamnet", "embedded"): (1.6, 0.62), Variant("sed_mini", "embedded"): (3.5, 0.30)}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield two rows for each model and log, by requests and by sockets."""
    for bars, sockets in ((BARS, False), (SOCKET_BARS, True)):
        for variant, (cost, carried) in bars.items():
            if variant.log in setup.logs():
                yield from _rows(setup, variant, cost, carried, sockets)


def _rows(setup: Setup, variant: Variant, cost: float | None, carried: float | None, sockets: bool) -> Iterator[Row]:
    name = f"paced, {variant}{', sockets' if sockets else ''}"
    chunks = setup.size(windows.CHUNKS[variant.model])
    with processes.temporary_directory() as directory, running_log(variant.log) as beside:
        runs = count()

        def ours(streams: int) -> Sample:
            """Run the streams on a new service, because sessions of earlier runs would take their share."""
            name = f"run-{next(runs)}"
            settings = beside.settings | ({"kafka_prefix": f"{name}-"} if beside.settings else {})
            seconds = setup.size(SECONDS, 4)
            with processes.service(directory / name, **settings, **variant.settings) as server:
                server.brokers = beside.brokers
                return run_live(server.target(), streams, seconds, sockets)

        def bare() -> Sample:
            return processes.run_bare("windows", variant.model, str(windows.STREAMS), str(chunks))

        pairs = alternate(partial(ours, STREAMS), bare, setup.pairs)
        yield _cost_row(f"{name}, {STREAMS} streams, cost of a window", pairs, cost, _at_pace(setup, variant.model))
        in_time = median(_p99(sample) for sample, _ in pairs) <= LIMIT_MS
        yield _carried_row(f"{name}, streams with p99 <= {LIMIT_MS:.0f} ms", ours, bare, in_time, carried)


def run_live(target: Target, streams: int, seconds: float, sockets: bool) -> Sample:
    return processes.run_load(PacedPlan(target, streams, seconds, from_sent=True, warm=WARM, sockets=sockets))


def _at_pace(setup: Setup, model: str) -> Sample:
    """Run bare in real time, on one thread, with a chunk of one stream after the other."""
    chunks = int(setup.size(SECONDS, 4) / audio.SECONDS)
    return processes.run_bare("windows", model, str(STREAMS), str(chunks), str(STREAMS / audio.SECONDS))


def _p99(sample: Sample) -> float:
    return percentile(sample.latencies, 0.99)


def _cost_row(name: str, pairs: Sequence[tuple[Sample, Sample]], bar: float | None, at_pace: Sample) -> Row:
    ratios = [bare.per_cpu / ours.per_cpu for ours, bare in pairs]
    samples = [ours for ours, _ in pairs]
    beside = {
        "ms a window": median(1000 / ours.per_cpu for ours in samples),
        "bare ms a window": median(1000 / bare.per_cpu for _, bare in pairs),
        "bare ms a window in real time": 1000 / at_pace.per_cpu,
        "over bare in real time": median(at_pace.per_cpu / ours.per_cpu for ours in samples),
        "p50 ms": median(median(ours.latencies) for ours in samples),
        "p99 ms": median(map(_p99, samples)),
        "CPU of the service, cores": median(ours.cpu / ours.seconds for ours in samples),
        "of the load": median(ours.load / ours.seconds for ours in samples),
        "of the broker": median(ours.broker / ours.seconds for ours in samples),
    }
    return value_row(name, ratios, "ratio", bar, beside)


def _carried_row(name: str, ours: Callable[[int], Sample], bare: Contender, in_time: bool, bar: float | None) -> Row:
    """Return the row of the largest number in time; its highest value is the smallest number that was late."""
    before = _carried(bare)
    tried: dict[int, Sample] = {}

    def passes(streams: int) -> bool:
        """Two runs of three decide, so that one pause of the machine does not. Refused streams are late."""
        try:
            runs = sorted((ours(streams) for _ in range(2)), key=_p99)
        except processes.Refused:
            return False
        if _p99(runs[0]) <= LIMIT_MS < _p99(runs[1]):
            runs = sorted([*runs, ours(streams)], key=_p99)
        tried[streams] = runs[1]
        return _p99(runs[1]) <= LIMIT_MS

    low, high = (STREAMS, before) if in_time else (1, STREAMS)
    largest, late = bracket(passes, low, high, TRIES, NEAR)
    carried = mean([before, _carried(bare)])
    beside = {"streams": float(largest), "too many": float(late), "bare streams": carried}
    if largest in tried:
        beside |= {"p50 ms": median(tried[largest].latencies), "p99 ms": _p99(tried[largest])}
        beside["CPU of the service, cores"] = tried[largest].cpu / tried[largest].seconds
    return Row(name, largest / carried, largest / carried, late / carried, bar=bar, beside=beside)


def _carried(bare: Contender) -> int:
    """Return how many streams bare carries on all cores, by a process for each: no two share an interpreter.

    Processor time counts, so other work on the machine does not make it less.
    """
    return int(sum(sample.per_cpu for sample in on_every_core(bare)) * audio.SECONDS)
