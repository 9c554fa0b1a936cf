"""Accepted jobs complete, each service ends once, and the ledger matches the log, across kills."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.speech import spoken
from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import Client, kill_on_the_way
from tests.stub_engines import StubEngines

#: Total jobs; the service is killed about every twenty.
JOBS = length("JOBS", 80)
KILLS = max(1, JOBS // 20)
CLIENTS = 12
SECONDS = 2
FAILING = 0.2

SOUND = {"sound_event_detection": True}
SPEECH = {**SOUND, "speech_analysis": True}
ALL = {**SPEECH, "audio_insights": True, "caption": True, "translation": True}
Results = dict[str, dict[str, Any]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400 + 2 * JOBS)]


@pytest.fixture
def engines() -> Iterator[StubEngines]:
    with StubEngines(seed=SEED) as stub:
        stub.failing = FAILING
        yield stub


@pytest.fixture
def settings(engines: StubEngines) -> dict[str, str]:
    return {"model": "sed-mini", **engines.settings}


async def _read_again(victim: ServiceProcess, results: Results) -> Results:
    async with Client(victim) as client:
        return {job: await client.result(job) for job in results}


async def test_accepted_jobs_survive_kill_9(victim: ServiceProcess, engines: StubEngines) -> None:
    """Kill at random while jobs run, then compare results, rebuilt tables, and the ledger with the log."""
    print(f"seed {SEED}, {JOBS} jobs, {KILLS} kills")
    audio, numbers, results = spoken(SECONDS), iter(range(JOBS)), Results()

    async def client_story() -> None:
        async with Client(victim, give_up=240) as client:
            for number in numbers:
                job = await client.job(audio, (SOUND, SPEECH, ALL)[number % 3], f"{SEED}-{number}")
                results[job] = await client.result(job)

    work = asyncio.gather(*(client_story() for _ in range(CLIENTS)))
    await kill_on_the_way(victim, work, lambda: len(results), JOBS, KILLS, random.Random(SEED))
    await work
    assert len(results) == JOBS
    entries = [
        (job, service, entry["status"])
        for job, result in results.items()
        for service, entry in result.items()
        if service != "metadata"
    ]
    thirds = [len(range(start, JOBS, 3)) for start in range(3)]
    assert len(entries) == thirds[0] + 2 * thirds[1] + 5 * thirds[2]
    assert {status for _, _, status in entries} == {"success", "error"}
    assert await _read_again(victim, results) == results
    victim.kill()
    victim.drop_tables()
    victim.start()
    assert await _read_again(victim, results) == results
    assert victim.stop() == 0
    # The ledger has every success once, to the millisecond, and so does a recount from the log.
    lines = json.loads(victim.command("usage", "--lines", "--format", "json"))
    succeeded = {(job[:8], service) for job, service, status in entries if status == "success"}
    assert sorted((line["job"], line["service"]) for line in lines) == sorted(succeeded)
    assert {line["audio_seconds"] for line in lines} == {SECONDS}
    victim.command("usage", "--recount")
