"""`kill -9` of workers and of their zygote: windows are never lost, repeated or changed, and no job is lost."""

import asyncio
import random
import time
from contextlib import suppress
from typing import Any

import httpx2
import psutil
import pytest

from tests.audio import encoded, noise
from tests.lengths import SEED, length
from tests.process import ServiceProcess, living
from tests.recovery.conftest import ON_EMBEDDED
from tests.recovery.load import Client, Stream
from tests.recovery.truth import ZEROS, expected_events, faults

STREAMS = 32
KILLS = length("WORKER_KILLS", 10)
#: Longest pause between two chunks of a stream; on average the half second of a chunk.
PAUSE_SECONDS = 1.0
#: Number of kills after which the zygote, and so every worker, is killed.
ZYGOTES = max(7, KILLS // 10)

pytestmark = [ON_EMBEDDED, pytest.mark.slow, pytest.mark.timeout(300 + 2 * KILLS)]


@pytest.fixture
def settings() -> dict[str, str]:
    return {"workers": "2"}


def _zygote(service: ServiceProcess) -> psutil.Process:
    """Return the only child of a service without engines."""
    assert service.process is not None
    return next(iter(living(psutil.Process(service.process.pid))))


def _deaths(service: ServiceProcess) -> float:
    metrics = httpx2.get(f"{service.url}/metrics", timeout=30).text
    return float(metrics.partition("\nearshot_worker_deaths_total ")[2].split()[0])


async def _kill(service: ServiceProcess, zygotes: bool) -> None:
    """Kill workers at random, and sometimes the zygote."""
    chance, killed = random.Random(SEED), 0
    # Some kills hit a worker that has not registered yet, or a decoder: they are no deaths of workers.
    while killed < KILLS or await asyncio.to_thread(_deaths, service) < KILLS / 2:
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        # There may be none at the moment.
        with suppress(psutil.NoSuchProcess, StopIteration):
            zygote = _zygote(service)
            its_turn = zygotes and killed % ZYGOTES == ZYGOTES - 1
            if workers := [zygote] if its_turn else living(zygote):
                chance.choice(workers).kill()
                killed += 1


async def _live(client: Client, seed: int, end: asyncio.Future[None]) -> tuple[Stream, float]:
    """Stream until the end; also return the longest time from an acknowledgement to its window."""
    stream, pause = await client.open(), random.Random(seed)
    reading = asyncio.create_task(_stall(client, stream))
    while not end.done():
        await client.put(stream, seed)
        await asyncio.sleep(pause.uniform(0, PAUSE_SECONDS))
    await client.seal(stream)
    return stream, await reading


async def _stall(client: Client, stream: Stream) -> float:
    worst, query = 0.0, {"count": "100"}
    while True:
        answer = await client.status(stream.session, **query)
        inference = answer.json()["inference"]
        for event in inference["results"]:
            # A window's second chunk; the last window waits for the seal, not for a worker.
            if (last := round(2 * event["start_time"]) + 1) < len(stream.times):
                worst = max(worst, time.monotonic() - stream.times[last])
        if (token := inference["page"].get("next_token")) is None:
            return worst
        query = {"next_token": token}


async def _result(client: Client, audio: bytes) -> Any:
    return (await client.result(await client.job(audio, {"sound_event_detection": True})))["sound_event_detection"]


async def _jobs(client: Client, audio: bytes, end: asyncio.Future[None]) -> list[Any]:
    """Send jobs in sequence until the end; return their results."""
    results = []
    while not end.done():
        results.append(await _result(client, audio))
    return results


@pytest.mark.parametrize("zygotes", [False, True], ids=["workers", "workers and zygotes"])
async def test_killed_workers_lose_no_windows_or_jobs(victim: ServiceProcess, zygotes: bool) -> None:
    assert victim.process is not None
    before = victim.process.pid
    audio = encoded(noise(60 * 16_000), 16_000)
    async with Client(victim) as client:
        undisturbed = await _result(client, audio)
        end = asyncio.ensure_future(_kill(victim, zygotes))
        jobs = asyncio.create_task(_jobs(client, audio, end))
        streams = await asyncio.gather(*(_live(client, SEED + number, end) for number in range(STREAMS)))
        await end
        # Without a zygote no decoder can check a recording: the client gets 503 and repeats the request.
        assert zygotes or client.repeats == 0, "no request hears of it"
        results = [undisturbed, *await jobs]
    assert victim.process.pid == before
    async with Client(victim) as client:
        read_events = [await client.events(stream.session, 100) for stream, _ in streams]
    found = faults(read_events, [expected_events(stream.chunks) for stream, _ in streams])
    stalls = sorted(stall for _, stall in streams)
    print(
        f"\n{KILLS} kills, {sum(map(len, read_events))} windows, {found}, {len(results)} jobs; "
        f"worst stall of a stream {stalls[-1]:.2f} s, median of the streams' worst {stalls[STREAMS // 2]:.2f} s"
    )
    assert found == ZEROS
    assert results[0]["status"] == "success"
    assert results[1:] == [results[0]] * (len(results) - 1)
