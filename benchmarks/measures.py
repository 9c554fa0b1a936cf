"""Samples, pairs of samples, and the rows of the table."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import msgspec

from streams import cores


class Sample(msgspec.Struct, frozen=True):
    """One run of one contender."""

    #: Windows, chunks or reads.
    done: int
    seconds: float
    #: CPU seconds of the contender's own processes, and of the broker.
    cpu: float
    broker: float = 0.0
    #: Milliseconds of single events, if the plan measures them.
    latencies: tuple[float, ...] = ()
    #: CPU seconds of the load process.
    load: float = 0.0

    @property
    def per_cpu(self) -> float:
        return self.done / self.cpu

    @property
    def per_second(self) -> float:
        return self.done / self.seconds


class Row(msgspec.Struct, frozen=True):
    """One line of the table: a median with the lowest and the highest value, and further figures."""

    name: str
    value: float
    low: float
    high: float
    unit: str = "ratio"
    #: Limit that `value` must reach (or stay under if `at_most`); None for no limit.
    bar: float | None = None
    at_most: bool = False
    beside: dict[str, float] = {}

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if there is no bar."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar


Contender = Callable[[], Sample]


def alternate(ours: Contender, bare: Contender, pairs: int) -> list[tuple[Sample, Sample]]:
    """Warm both up, then run them alternately, so that a disturbance of the machine affects both."""
    ours(), bare()
    return [(ours(), bare()) for _ in range(pairs)]


def on_every_core(contender: Contender) -> list[Sample]:
    """Run a contender in a process for each core at once: cores may share caches, memory and even their units."""
    count = cores.usable()
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: contender(), range(count)))


def ratio_row(
    name: str, pairs: Sequence[tuple[Sample, Sample]], unit: str, bar: float | None = None, other: str = "bare"
) -> Row:
    """Return the row of our ratio to another contender, both per CPU-second; `unit` names the work."""
    ratios = [ours.per_cpu / bare.per_cpu for ours, bare in pairs]
    beside = {
        "wall ratio": median(ours.per_second / bare.per_second for ours, bare in pairs),
        f"{unit}/CPU-s": median(ours.per_cpu for ours, _ in pairs),
        f"{other} {unit}/CPU-s": median(bare.per_cpu for _, bare in pairs),
        f"{unit}/s": median(ours.per_second for ours, _ in pairs),
        f"{other} {unit}/s": median(bare.per_second for _, bare in pairs),
    }
    if any(ours.broker for ours, _ in pairs):
        beside["broker CPU-s per own"] = median(ours.broker / ours.cpu for ours, _ in pairs)
    if any(bare.broker for _, bare in pairs):
        beside[f"{other} broker CPU-s per own"] = median(bare.broker / bare.cpu for _, bare in pairs)
    return Row(name, median(ratios), min(ratios), max(ratios), bar=bar, beside=beside)


def value_row(
    name: str, values: Sequence[float], unit: str, bar: float | None = None, beside: dict[str, float] | None = None
) -> Row:
    """Return the row of an absolute value, which must stay under its bar."""
    return Row(name, median(values), min(values), max(values), unit, bar, at_most=True, beside=beside or {})


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a share of all values, 0..1, do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def bracket(passes: Callable[[int], bool], low: int, high: int, tries: int, near: float) -> tuple[int, int]:
    """Return the largest number that passed and the smallest that failed; `low` passes and `high` fails untried.

    Each try halves the ratio between the two. The search ends after `tries`, or when that ratio is at most `near`.
    """
    for _ in range(tries):
        middle = round(math.sqrt(low * high))
        if high <= near * low or not low < middle < high:
            break
        if passes(middle):
            low = middle
        else:
            high = middle
    return low, high
