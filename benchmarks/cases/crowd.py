"""Two thousand live streams, relative to thirty-two, at full speed: a stream's cost must not depend on their number.

Each has eight chunks outstanding, 256 MB in all, more than any cache of recent audio holds.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import processes
from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, ratio_row
from benchmarks.plans import LivePlan

#: Streams, and chunks per stream.
MANY: Final = (2_000, 20)
FEW: Final = (32, 400)
BARS: Final = {Variant("sed_mini", "embedded"): 0.90, Variant("sed_mini", "kafka", 16): 0.90}


def measure(setup: Setup) -> Iterator[Row]:
    for variant, bar in BARS.items():
        if variant.log in setup.logs():
            yield row(setup, variant, bar)


def row(setup: Setup, variant: Variant, bar: float, sockets: bool = False) -> Row:
    with running_service(variant.log, **variant.settings) as (server, _):
        target = server.target()
        plans = (LivePlan(target, streams, setup.size(chunks), sockets=sockets) for streams, chunks in (MANY, FEW))
        pairs = processes.alternate_loads(plans, setup.pairs)
    name = f"{MANY[0]:,} streams over {FEW[0]}, {variant}{', sockets' if sockets else ''}"
    return ratio_row(name, pairs, "windows", bar, f"{FEW[0]} streams")
