"""Faults in sequence under load; compaction; deleted tables; one node that rebuilds all from the changelog.

After each, every page of every session is compared with a clean run, and deleted sessions have none.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from infra import models
from tests.fencing.faults import FAULTS
from tests.fencing.load import PATIENCE_SECONDS, Ended, Load
from tests.fencing.scene import Scene
from tests.kafka.compaction import compact
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import Events, engine, expected_events, faults
from topics.catalog import CHANGELOG

#: Faults between two compactions of the changelog.
COMPACT_EVERY = 5
MODEL = models.directory("sed_mini")
#: Timeout of a session's windows.
WINDOWS_SECONDS = 180.0
AT_ONCE = 8

LookAt = Callable[[Stream, Events], Iterable[str]]


@dataclass
class Row:
    """A fault, and the findings after it."""

    what: str
    ended: Ended
    #: Requests held back in the network.
    held: int = 0
    #: A line for each faulty session, and for each forbidden answer to a client.
    wrong: list[str] = field(default_factory=list)


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
    yield Row("compacted", everything, wrong=await compare(scene.processes, everything))
    rebuilt = await asyncio.to_thread(scene.rebuild)
    yield Row("rebuilt", everything, wrong=await compare([rebuilt], everything))


async def _strike(scene: Scene, load: Load, kind: str, chance: random.Random) -> Row:
    number, refused = chance.randrange(len(scene.nodes)), len(load.refused)
    fault, _ = FAULTS[kind]
    held = await fault(scene.nodes[number], load, chance)
    await scene.settle()
    ended = load.take()
    wrong = await compare(scene.processes, ended)
    return Row(f"{kind} (node {number})", ended, held, wrong + load.refused[refused:])


async def compare(nodes: list[ServiceProcess], ended: Ended, look_at: LookAt | None = None) -> list[str]:
    """Compare every ended session, read through `nodes` in turn; return a line for each faulty one.

    `look_at` gets each kept session with its truth, and returns further faults.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    wrong: list[str] = []
    # Before the threads: msgspec crashes if two are the first to decode a type.
    engine(MODEL)

    async with Client(*nodes, patience=PATIENCE_SECONDS) as client:

        async def look(kind: str, stream: Stream) -> None:
            async with gate:
                events = await _read(client, stream.session)
            truth = await asyncio.to_thread(_truth, kind, stream)
            counts = faults([events], [truth])
            if any(counts.values()):
                wrong.append(f"{kind} {stream.session} has {len(events)} of {len(truth)} windows: {counts}")
            if look_at is not None:
                wrong.extend(look_at(stream, truth))

        async def look_for_nothing(session: str) -> None:
            async with gate:
                answer = await client.status(session)
            if answer.status_code != 404:
                wrong.append(f"{session} was deleted, and shows: {answer.text[:200]}")

        await asyncio.gather(*(look(*kept) for kept in ended.kept), *map(look_for_nothing, ended.deleted))
    return wrong


async def _read(client: Client, session: str) -> Events:
    """Return the events of a session; none if it has no answer in time, or is deleted."""
    try:
        async with asyncio.timeout(WINDOWS_SECONDS):
            return await client.events(session)
    except (AssertionError, TimeoutError):
        return []


def _truth(kind: str, stream: Stream) -> Events:
    # The bytes of a file are one piece of audio.
    chunks = [b"".join(stream.chunks)] if kind == "file" else stream.chunks
    return expected_events(chunks, MODEL)
