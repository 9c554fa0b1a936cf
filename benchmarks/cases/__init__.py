"""The measurements; each yields rows of the table."""

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.cases import (
    agents,
    chunks,
    cluster,
    counts,
    crowd,
    dashboard,
    decoding,
    first_view,
    footprint,
    held,
    interruptions,
    jobs,
    lanes,
    latency,
    lists,
    live,
    live_view,
    paced,
    pages,
    rebuild,
    scale,
    speakers,
    status,
    takeover,
    traces,
    windows,
)
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row

Case = Callable[[Setup], Iterator[Row]]

CASES: Final[dict[str, Case]] = {
    "windows": windows.measure,
    "traces": traces.measure,
    "paced": paced.measure,
    "counts": counts.measure,
    "live": live.measure,
    "scale": scale.measure,
    "lanes": lanes.measure,
    "held": held.measure,
    "interruptions": interruptions.measure,
    "agents": agents.measure,
    "crowd": crowd.measure,
    "chunks": chunks.measure,
    "decoding": decoding.measure,
    "status": status.measure,
    "latency": latency.measure,
    "pages": pages.measure,
    "lists": lists.measure,
    "live_view": live_view.measure,
    "sounds": jobs.sounds,
    "speech": jobs.speech,
    "hanging": jobs.hanging,
    "accepting": jobs.accepting,
    "registering": speakers.registering,
    "keys": speakers.keys,
    "refusing": speakers.refusing,
    "bytes": footprint.written,
    "memory": footprint.memory,
    "start": footprint.start,
    "rebuild": rebuild.measure,
    "cluster": cluster.measure,
    "takeover": takeover.measure,
    "dashboard": dashboard.measure,
    "first_view": first_view.measure,
}
