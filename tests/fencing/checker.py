"""Compares every page of every session with a clean run, and checks that deleted sessions have none."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from infra import models
from tests.fencing.load import PATIENCE_SECONDS, Ended
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import ZEROS, Events, engine, expected_events, faults

MODEL = models.directory("sed_mini")
#: Timeout of a session's windows.
WINDOWS_SECONDS = 60.0
AT_ONCE = 8

NOTHING_WRONG = {**ZEROS, "deleted that show": 0}


@dataclass
class Findings:
    """Counts of faults, and a line for each faulty session."""

    counts: Counter[str] = field(default_factory=lambda: Counter(NOTHING_WRONG))
    wrong: list[str] = field(default_factory=list)


async def compare(nodes: list[ServiceProcess], ended: Ended) -> Findings:
    """Compare every ended session, read through `nodes` in turn."""
    gate = asyncio.Semaphore(AT_ONCE)
    found = Findings()
    # Before the threads: msgspec crashes if two are the first to decode a type.
    engine(MODEL)

    async with Client(*nodes, patience=PATIENCE_SECONDS) as client:

        async def look(kind: str, stream: Stream) -> None:
            async with gate:
                events = await _read(client, stream.session)
            truth = await asyncio.to_thread(_truth, kind, stream)
            counts = faults([events], [truth])
            found.counts.update(counts)
            if any(counts.values()):
                found.wrong.append(f"{kind} {stream.session} has {len(events)} of {len(truth)} windows: {counts}")

        async def look_for_nothing(session: str) -> None:
            async with gate:
                answer = await client.status(session)
            if answer.status_code != 404:
                found.counts["deleted that show"] += 1
                found.wrong.append(f"{session} was deleted, and shows: {answer.text[:200]}")

        await asyncio.gather(*(look(*kept) for kept in ended.kept), *map(look_for_nothing, ended.deleted))
    return found


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
