"""Windows on Kafka over the stack that a good engineer builds in a week, under the same load."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, Variant, running_log
from benchmarks.measures import Row, alternate, ratio_row
from benchmarks.plans import LivePlan

#: Model, partitions, streams, chunks of each; and the bar.
BARS: Final = {
    ("yamnet", 16, 32, 80): 0.85,
    ("yamnet", 64, 32, 80): 0.85,
    ("sed_mini", 16, 32, 240): 0.75,
    ("sed_mini", 64, 32, 240): 0.75,
    ("sed_mini", 16, 1_000, 24): 0.75,
}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each load."""
    for load, bar in BARS.items():
        if setup.kafka:
            yield _row(setup, *load, bar)


def _row(setup: Setup, model: str, partitions: int, streams: int, chunks: int, bar: float) -> Row:
    variant = Variant(model, "kafka", partitions)
    with (
        processes.temporary_directory() as directory,
        running_log(variant.log) as beside,
        processes.service(directory / "data", **beside.settings, **variant.settings) as server,
        processes.stack(directory, beside.settings["broker"], partitions, model) as stack,
    ):
        ours, theirs = (
            partial(processes.run_load, LivePlan(one.target(beside.brokers), streams, setup.size(chunks)))
            for one in (server, stack)
        )
        pairs = alternate(ours, theirs, setup.pairs)
    return ratio_row(f"windows over the stack, {variant}, {streams:,} streams", pairs, "windows", bar, "stack")
