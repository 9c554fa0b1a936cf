"""Faults in sequence under load; compaction; deleted tables; one node that rebuilds all from the changelog."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.fencing.checker import Findings, compare
from tests.fencing.faults import FAULTS
from tests.fencing.load import Ended, Load
from tests.fencing.scene import Scene
from tests.kafka.compaction import compact
from topics.catalog import CHANGELOG

#: Faults between two compactions of the changelog.
COMPACT_EVERY = 5


@dataclass
class Row:
    """A fault, and the findings after it."""

    what: str
    ended: Ended
    #: Requests held back in the network.
    held: int = 0
    findings: Findings = field(default_factory=Findings)
    #: Forbidden answers to clients.
    refused: list[str] = field(default_factory=list)


async def campaign(scene: Scene, kinds: list[str], seed: int) -> AsyncIterator[Row]:
    """Yield a row after each fault, one after the compaction, and one after rebuilding the tables.

    The first rows compare the sessions that ended since the previous fault, and the last two all.

    Raises:
        AssertionError: A node does not become ready, or no compaction occurs.
        TimeoutError: Clients wait too long.
    """
    load, everything = Load(scene.processes, seed), Ended()
    load.start()
    try:
        await load.turn()
        for number, kind in enumerate(kinds):
            row = await _strike(scene, load, kind, random.Random(f"{seed}-{number}"))
            everything += row.ended
            yield row
            if number % COMPACT_EVERY == COMPACT_EVERY - 1:
                assert await compact(scene.cluster, CHANGELOG), "the changelog was not compacted"
        assert await compact(scene.cluster, CHANGELOG, tombstones_ms=0), "the changelog was not compacted"
    finally:
        await load.stop()
    everything += load.take()
    yield Row("compacted", everything, findings=await compare(scene.processes, everything))
    rebuilt = await asyncio.to_thread(scene.rebuild)
    yield Row("rebuilt", everything, findings=await compare([rebuilt], everything))


async def _strike(scene: Scene, load: Load, kind: str, chance: random.Random) -> Row:
    number, refused = chance.randrange(len(scene.nodes)), len(load.refused)
    held = await FAULTS[kind](scene.nodes[number], load, chance)
    await scene.settle()
    ended = load.take()
    findings = await compare(scene.processes, ended)
    return Row(f"{kind} (node {number})", ended, held, findings, load.refused[refused:])
