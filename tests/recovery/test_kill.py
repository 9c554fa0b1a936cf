"""Acknowledged chunks appear once, in order, with the scores of a run without faults, whatever died in between.

`kill -9` of a process keeps what the kernel has: this proves the death of processes, not the loss of power.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BOTH_LOGS, own_log
from tests.process import ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, Stream
from tests.recovery.truth import ZEROS, Events, expected_events, faults
from topics.sessions.records import Opened

SESSIONS = 32
#: Acknowledged chunks in all; EARSHOT_TEST_CHUNKS asks for any number.
CHUNKS = int(os.environ.get("EARSHOT_TEST_CHUNKS", "2000"))
SEED = int(os.environ.get("EARSHOT_TEST_SEED", str(int(time.time()))))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(params=BOTH_LOGS)
def victim(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service to be killed, on a log of its own."""
    with own_log(request.param) as settings:
        process = ServiceProcess(tmp_path / "data", **settings)
        yield process.start()
        process.stop()


async def _nemesis(victim: ServiceProcess, chance: random.Random, work: asyncio.Task[list[Stream]]) -> int:
    """Kill and start the service at random until the work is done."""
    kills = 0
    while not work.done():
        await asyncio.wait({work}, timeout=chance.uniform(0.5, 3.0))
        if not work.done():
            await asyncio.to_thread(victim.kill)
            kills += 1
            await asyncio.to_thread(victim.start)
    return kills


async def _stream_through_kills(victim: ServiceProcess, chance: random.Random) -> tuple[list[Stream], int]:
    each = -(-CHUNKS // SESSIONS)

    async def all_streams() -> list[Stream]:
        async with Client(victim) as client:
            return list(await asyncio.gather(*(client.stream(SEED + number, each) for number in range(SESSIONS))))

    work = asyncio.create_task(all_streams())
    kills = await _nemesis(victim, chance, work)
    return await work, kills


def _truth(streams: list[Stream]) -> list[Events]:
    opened = Opened("", "stream", CONTENT_TYPE, "", 1000, 500, default_sensitivity=-2)
    return [expected_events(opened, stream.chunks) for stream in streams]


async def _compare(victim: ServiceProcess, streams: list[Stream], truth: list[Events]) -> dict[str, int]:
    """Compare every page of every session with the truth."""
    async with Client(victim) as client:
        read = [await client.events(stream.session) for stream in streams]
        await _check_list(client, streams)
    return faults(read, truth)


async def _check_list(client: Client, streams: list[Stream]) -> None:
    """The project's list has every session once, and none that is not there; some were opened by a lost answer."""
    listed: list[str] = []
    query = {"count": "5"}
    while query:
        answer = await client.ask("GET", "/audio_sessions/", params=query, headers={"X-Api-Key": client.service.key})
        page = answer.json()
        listed += [entry["session_id"] for entry in page["sessions"]]
        query = {"next_token": page["next_token"]} if "next_token" in page else {}
    assert len(set(listed)) == len(listed)
    assert {stream.session for stream in streams} <= set(listed)
    for session in listed:
        assert (await client.ask("GET", f"/audio_sessions/{session}/status")).status_code == 200


def test_every_fault_is_counted() -> None:
    one, two, three = ({"start_time": start, "tags": []} for start in (0.0, 0.5, 1.0))
    truth = [[one, two], [one, two, three]]
    assert faults(truth, truth) == ZEROS
    assert faults([[one], truth[1]], truth) == {**ZEROS, "lost": 1, "different": 1}
    assert faults([[one, two, three], truth[1]], truth) == {**ZEROS, "invented": 1, "different": 1}
    assert faults([[one, two, two], truth[1]], truth) == {**ZEROS, "twice": 1, "different": 1}
    assert faults([truth[0], [one, three, two]], truth) == {**ZEROS, "out of order": 1, "different": 1}
    assert faults([[one, {**two, "tags": ["Siren"]}], [*truth[1]]], truth) == {**ZEROS, "different": 1}


def test_acknowledged_chunks_survive_kill_9(victim: ServiceProcess) -> None:
    """Kill at random while sessions stream, then compare; again after the local tables are deleted."""
    print(f"seed {SEED}, {CHUNKS} chunks, {SESSIONS} sessions")
    streams, kills = asyncio.run(_stream_through_kills(victim, random.Random(SEED)))
    assert kills > 0
    acked = sum(len(stream.chunks) for stream in streams)
    assert acked >= CHUNKS
    print(f"{acked} chunks acknowledged through {kills} kills")
    truth = _truth(streams)
    assert asyncio.run(_compare(victim, streams, truth)) == ZEROS
    victim.kill()
    for tables in victim.data.glob("tables*"):
        shutil.rmtree(tables)
    victim.start()
    assert asyncio.run(_compare(victim, streams, truth)) == ZEROS
