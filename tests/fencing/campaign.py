"""Faults in sequence under load; compaction; deleted tables; one node that rebuilds all from the changelog."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.fencing.checker import Findings, compare
from tests.fencing.faults import FAULTS
from tests.fencing.load import Ended, Load
from tests.fencing.scene import Scene
from tests.kafka.compaction import compact
from tests.process import ServiceProcess
from topics.catalog import CHANGELOG

#: Faults between two compactions of the changelog.
COMPACT_EVERY = 5


@dataclass
class Row:
    """A fault, and the findings after it."""

    what: str
    seconds: float
    #: Seconds until all nodes were ready again, and the number of processes that ended by themselves.
    settled: float = 0.0
    ended: int = 0
    #: Requests held back in the network.
    held: int = 0
    chunks: int = 0
    repeats: int = 0
    sessions: int = 0
    deleted: int = 0
    findings: Findings = field(default_factory=Findings)
    #: Forbidden answers to clients.
    refused: list[str] = field(default_factory=list)


async def campaign(scene: Scene, kinds: list[str], seed: int, again: bool = False) -> AsyncIterator[Row]:
    """Yield a row after each fault, one after the compaction, and one after rebuilding the tables.

    Each row compares the sessions that ended since the previous fault; with `again` all that ever ended.

    Raises:
        AssertionError: A node does not become ready, or no compaction occurs.
        TimeoutError: Clients wait too long.
    """
    load, everything = Load(scene.processes, seed), Ended()
    load.start()
    try:
        await load.turn()
        for number, kind in enumerate(kinds):
            row, ended = await _strike(scene, load, kind, random.Random(f"{seed}-{number}"))
            everything += ended
            row.findings = await compare(scene.processes, everything if again else ended)
            yield row
            if number % COMPACT_EVERY == COMPACT_EVERY - 1:
                assert await compact(scene.cluster, CHANGELOG), "the changelog was not compacted"
        began = time.monotonic()
        assert await compact(scene.cluster, CHANGELOG, tombstones_ms=0), "the changelog was not compacted"
    finally:
        await load.stop()
    everything += load.take()
    yield await _compared("compacted", scene.processes, everything, began)
    began = time.monotonic()
    rebuilt = await asyncio.to_thread(scene.rebuild)
    yield await _compared("rebuilt", [rebuilt], everything, began)


async def _strike(scene: Scene, load: Load, kind: str, chance: random.Random) -> tuple[Row, Ended]:
    number = chance.randrange(len(scene.nodes))
    began, chunks, repeats = time.monotonic(), load.chunks, load.repeats
    refused = len(load.refused)
    held = await FAULTS[kind](scene.nodes[number], load, chance)
    seconds = time.monotonic() - began
    settled, stopped = await scene.settle()
    ended = load.take()
    row = Row(f"{kind} (node {number})", seconds, settled, stopped, held, load.chunks - chunks, load.repeats - repeats)
    row.sessions, row.deleted = len(ended.kept), len(ended.deleted)
    row.refused = load.refused[refused:]
    return row, ended


async def _compared(what: str, processes: list[ServiceProcess], ended: Ended, began: float) -> Row:
    findings = await compare(processes, ended)
    seconds = time.monotonic() - began
    return Row(what, seconds, sessions=len(ended.kept), deleted=len(ended.deleted), findings=findings)
