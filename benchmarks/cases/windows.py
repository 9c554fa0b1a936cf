"""Windows end to end over HTTP, relative to ONNX Runtime with its front end in a plain loop."""

from collections.abc import Iterator
from functools import partial
from statistics import mean, median
from typing import Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, alternate, on_every_core, ratio_row
from benchmarks.plans import LivePlan

STREAMS: Final = 32
#: Chunks per stream, fewer for the slower model.
CHUNKS: Final = {"yamnet": 80, "sed_mini": 240}
BARS: Final = {
    Variant("yamnet", "embedded"): 0.82,
    Variant("yamnet", "kafka", 16): 0.70,
    Variant("yamnet", "kafka", 64): 0.68,
    Variant("sed_mini", "embedded"): 0.52,
    Variant("sed_mini", "kafka", 16): 0.40,
    Variant("sed_mini", "kafka", 64): 0.38,
}


def measure(setup: Setup) -> Iterator[Row]:
    for variant, bar in BARS.items():
        if variant.log in setup.logs():
            yield row(setup, variant, bar)


def row(setup: Setup, variant: Variant, bar: float, sockets: bool = False) -> Row:
    chunks = setup.size(CHUNKS[variant.model])
    with running_service(variant.log, **variant.settings) as (server, _):
        plan = LivePlan(server.target(), STREAMS, chunks, sockets=sockets)
        bare = partial(processes.run_bare, "windows", variant.model, str(STREAMS), str(chunks))
        pairs = alternate(partial(processes.run_load, plan), bare, setup.pairs)
    row = ratio_row(f"windows, {variant}{', sockets' if sockets else ''}", pairs, "windows", bar)
    every = mean(sample.per_cpu for sample in on_every_core(bare))
    row.beside["ratio to bare on every core"] = median(ours.per_cpu for ours, _ in pairs) / every
    return row
