"""`kill -9` of workers, and of the process that they come from: no window is lost, twice or different, and no job."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.audio import encoded, noise
from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, Stream
from tests.recovery.truth import ZEROS, expected_events, faults
from topics.sessions.records import Opened

SESSIONS = 32
EACH = -(-length("CHUNKS", 400) // SESSIONS)
CHUNKS = SESSIONS * EACH
KILLS = max(1, CHUNKS // 40)
#: Kills between two kills of the zygote, which end all workers.
ZYGOTES = 7

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CHUNKS)]


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[ServiceProcess]:
    process = ServiceProcess(tmp_path / "data", workers=2)
    yield process.start()
    process.stop()


def _zygote(service: ServiceProcess) -> psutil.Process:
    assert service.process is not None
    children = psutil.Process(service.process.pid).children(recursive=True)
    # What it forked has its command.
    commands = {child: child.cmdline() for child in children if child.is_running()}
    zygotes = {child for child, command in commands.items() if "streams.workers.zygote" in command}
    return next(child for child in zygotes if child.parent() not in zygotes)


async def _kill(service: ServiceProcess, client: Client, work: asyncio.Future[Any]) -> int:
    """Kill a worker about once in some acknowledged chunks; return how many were killed."""
    chance, killed = random.Random(SEED), 0
    while killed < KILLS and not work.done():
        if client.acknowledged >= CHUNKS * killed / (KILLS + 1):
            # There may be none at the moment.
            with suppress(psutil.NoSuchProcess, StopIteration):
                zygote = _zygote(service)
                workers = zygote.children()
                chance.choice([zygote] if killed % ZYGOTES == ZYGOTES - 1 and workers else workers or [zygote]).kill()
                killed += 1
        # A session whose worker is killed three times without progress counts as the cause.
        await asyncio.sleep(chance.uniform(0.15, 0.3))
    return killed


async def _job(client: Client, audio: bytes) -> str:
    answer = await client.ask(
        "POST",
        "/api/v1/analyze_file",
        data={"options": '{"sound_event_detection": true}'},
        files={"audio": ("a.wav", audio)},
        headers={"X-Api-Key": client.service.key},
    )
    return f"/api/v1/jobs/{answer.json()['job_id']}"


async def _result(client: Client, place: str) -> Any:
    while True:
        answer = (await client.ask("GET", place, headers={"X-Api-Key": client.service.key})).json()
        if answer["status"] == "completed":
            return answer["result"]["sound_event_detection"]
        await asyncio.sleep(0.1)


async def _scene(service: ServiceProcess) -> tuple[list[Stream], list[Any], int]:
    audio = encoded(noise(60 * 16_000), 16_000)
    async with Client(service) as client:
        undisturbed = await _result(client, await _job(client, audio))
        work = asyncio.gather(*(client.stream(SEED + number, EACH) for number in range(SESSIONS)))
        jobs = [await _job(client, audio) for _ in range(3)]
        killed = await _kill(service, client, work)
        streams = await work
        results = [await _result(client, job) for job in jobs]
        assert client.repeats == 0, "no request hears of it"
    return streams, [undisturbed, *results], killed


def test_workers_that_are_killed_at_any_point_leave_no_trace(victim: ServiceProcess) -> None:
    assert victim.process is not None
    before = victim.process.pid
    streams, results, killed = asyncio.run(_scene(victim))
    assert killed >= KILLS // 2
    assert victim.process.pid == before
    opened = Opened("", "stream", CONTENT_TYPE, "", 1000, 500, default_sensitivity=-2)

    async def read() -> list[Any]:
        async with Client(victim) as client:
            return [await client.events(stream.session) for stream in streams]

    assert faults(asyncio.run(read()), [expected_events(opened, stream.chunks) for stream in streams]) == ZEROS
    assert results[0]["status"] == "success"
    assert results[1:] == [results[0]] * 3
    deaths = httpx2.get(f"{victim.url}/metrics", timeout=30).text.partition("\nearshot_worker_deaths ")[2].split()[0]
    assert float(deaths) >= killed / 4
