"""Acknowledged chunks appear once, in order, with the scores of an undisturbed run, across kills.

After `kill -9` the kernel's buffers remain: this tests the death of processes, not the loss of power.
"""

import asyncio
import random

import pytest

from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, kill_on_the_way
from tests.recovery.truth import ZEROS, Events, expected_events, faults

SESSIONS = 32
#: Chunks of each session; the service is killed about every hundred acknowledged chunks.
EACH = -(-length("CHUNKS", 400) // SESSIONS)
CHUNKS = SESSIONS * EACH
KILLS = max(1, CHUNKS // 100)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CHUNKS)]


async def _compare(victim: ServiceProcess, streams: list[Stream], truth: list[Events]) -> dict[str, int]:
    """Compare every page of every session with the truth; the list has each once, and those of lost answers."""
    async with Client(victim) as client:
        read = [await client.events(stream.session) for stream in streams]
        listed, _ = await client.listed(5)
        assert len(set(listed)) == len(listed)
        assert {stream.session for stream in streams} <= set(listed)
        for session in listed:
            assert (await client.status(session)).status_code == 200
    return faults(read, truth)


def test_every_fault_is_counted() -> None:
    one, two, three = ({"start_time": start, "tags": []} for start in (0.0, 0.5, 1.0))
    truth = [[one, two], [one, two, three]]
    assert faults(truth, truth) == ZEROS
    assert faults([[one], truth[1]], truth) == {**ZEROS, "lost": 1, "different": 1}
    assert faults([[one, two, three], truth[1]], truth) == {**ZEROS, "invented": 1, "different": 1}
    assert faults([[one, two, two], truth[1]], truth) == {**ZEROS, "twice": 1, "different": 1}
    assert faults([truth[0], [one, three, two]], truth) == {**ZEROS, "out of order": 1, "different": 1}
    assert faults([[one, {**two, "tags": ["Siren"]}], [*truth[1]]], truth) == {**ZEROS, "different": 1}


async def test_acknowledged_chunks_survive_kill_9(victim: ServiceProcess) -> None:
    """Kill at random while sessions stream, then compare; compare again after deleting the local tables."""
    print(f"seed {SEED}, {CHUNKS} chunks, {SESSIONS} sessions, {KILLS} kills")
    async with Client(victim) as client:
        work = asyncio.gather(*(client.stream(SEED + number, EACH) for number in range(SESSIONS)))
        await kill_on_the_way(victim, work, lambda: client.acknowledged, CHUNKS, KILLS, random.Random(SEED))
        streams = await work
        assert client.repeats >= KILLS, "each kill meets requests"
        assert client.acknowledged == CHUNKS
    truth = [expected_events(stream.chunks) for stream in streams]
    assert await _compare(victim, streams, truth) == ZEROS
    victim.kill()
    victim.drop_tables()
    victim.start()
    assert await _compare(victim, streams, truth) == ZEROS
