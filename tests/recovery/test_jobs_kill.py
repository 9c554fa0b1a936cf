"""Accepted jobs complete, each service ends once, and the ledger matches the log, across kills."""

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BOTH_LOGS, own_log
from tests.contract.speech import spoken
from tests.lengths import SEED, SESSION_SECONDS, length
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


@pytest.fixture(params=BOTH_LOGS)
def victim(request: pytest.FixtureRequest, engines: StubEngines, tmp_path: Path) -> Iterator[ServiceProcess]:
    with own_log(request.param, SESSION_SECONDS) as settings:
        process = ServiceProcess(tmp_path / "data", model="sed-mini", **settings, **engines.settings)
        yield process.start()
        process.stop()


async def _post(client: Client, audio: bytes, number: int) -> str:
    """Post a job until it is accepted; an Idempotency-Key makes repeats one job."""
    options = (SOUND, SPEECH, ALL)[number % 3]
    answer = await client.ask(
        "POST",
        "/api/v1/analyze_file",
        files={"options": (None, json.dumps(options)), "audio": ("talk.wav", audio, "audio/x-wav")},
        headers={"X-Api-Key": client.service.key, "Idempotency-Key": f"{SEED}-{number}"},
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["job_id"])


async def _completed(client: Client, job: str) -> dict[str, Any]:
    while True:
        answer = await client.ask("GET", f"/api/v1/jobs/{job}", headers={"X-Api-Key": client.service.key})
        assert answer.status_code == 200, f"an accepted job is gone: {answer.text}"
        if answer.json()["status"] == "completed":
            result: dict[str, Any] = answer.json()["result"]
            return result
        await asyncio.sleep(0.3)


async def _through_kills(victim: ServiceProcess, audio: bytes) -> Results:
    numbers = iter(range(JOBS))
    results: Results = {}

    async def client_story() -> None:
        async with Client(victim, give_up=240) as client:
            for number in numbers:
                job = await _post(client, audio, number)
                results[job] = await _completed(client, job)

    work = asyncio.gather(*(client_story() for _ in range(CLIENTS)))
    await kill_on_the_way(victim, work, lambda: len(results), JOBS, KILLS, random.Random(SEED))
    await work
    return results


async def _read_again(victim: ServiceProcess, results: Results) -> Results:
    async with Client(victim) as client:
        return {job: await _completed(client, job) for job in results}


def _entries(results: Results) -> list[tuple[str, str, str]]:
    return [
        (job, service, entry["status"])
        for job, result in results.items()
        for service, entry in result.items()
        if service != "metadata"
    ]


def test_accepted_jobs_survive_kill_9(victim: ServiceProcess, engines: StubEngines) -> None:
    """Kill at random while jobs run, then compare results, rebuilt tables, and the ledger with the log."""
    print(f"seed {SEED}, {JOBS} jobs, {KILLS} kills")
    results = asyncio.run(_through_kills(victim, spoken(SECONDS)))
    assert len(results) == JOBS
    entries = _entries(results)
    thirds = [len(range(start, JOBS, 3)) for start in range(3)]
    assert len(entries) == thirds[0] + 2 * thirds[1] + 5 * thirds[2]
    assert {status for _, _, status in entries} == {"success", "error"}
    assert asyncio.run(_read_again(victim, results)) == results
    victim.kill()
    for tables in victim.data.glob("tables*"):
        shutil.rmtree(tables)
    victim.start()
    assert asyncio.run(_read_again(victim, results)) == results
    assert victim.stop() == 0
    # The ledger has every success once, to the millisecond, and so does a recount from the log.
    lines = json.loads(victim.command("usage", "--lines", "--format", "json"))
    succeeded = {(job[:8], service) for job, service, status in entries if status == "success"}
    assert sorted((line["job"], line["service"]) for line in lines) == sorted(succeeded)
    assert {line["audio_seconds"] for line in lines} == {SECONDS}
    victim.command("usage", "--recount")
