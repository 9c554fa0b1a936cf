"""Two thousand live streams, relative to thirty-two, at full speed: a stream's cost must not depend on their number.

Each has eight chunks outstanding, 256 MB in all, more than any cache of recent audio holds. A further row has
thirty-two streams of four projects, relative to one project: projects that share the workers must not let them idle.
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
#: Projects that share the streams of the further row, and its bar.
PROJECTS: Final = 4
SHARED_BAR: Final = 0.85
BARS: Final = {Variant("sed_mini", "embedded"): 0.90, Variant("sed_mini", "kafka", 16): 0.90}


def measure(setup: Setup) -> Iterator[Row]:
    for variant, bar in BARS.items():
        if variant.log in setup.logs():
            yield row(setup, variant, bar)
    yield _projects_row(setup, Variant("sed_mini", "embedded"))


def row(setup: Setup, variant: Variant, bar: float, sockets: bool = False) -> Row:
    with running_service(variant.log, **variant.settings) as (server, _):
        target = server.target()
        plans = (LivePlan(target, streams, setup.size(chunks), sockets=sockets) for streams, chunks in (MANY, FEW))
        pairs = processes.alternate_loads(plans, setup.pairs)
    name = f"{MANY[0]:,} streams over {FEW[0]}, {variant}{', sockets' if sockets else ''}"
    return ratio_row(name, pairs, "windows", bar, f"{FEW[0]} streams")


def _projects_row(setup: Setup, variant: Variant) -> Row:
    with running_service(admin_key=processes.ADMIN_KEY, **variant.settings) as (server, _):
        target, (streams, chunks) = server.target(), FEW
        several = (target.key, *(processes.new_project(target.port, f"p{n}") for n in range(1, PROJECTS)))
        plans = (LivePlan(target, streams, setup.size(chunks), sockets=True, keys=keys) for keys in (several, ()))
        pairs = processes.alternate_loads(plans, setup.pairs)
    name = f"{PROJECTS} projects over one, {streams} streams, {variant}, sockets"
    return ratio_row(name, pairs, "windows", SHARED_BAR, "one project")
