"""A neighbour that comes and goes: what stays where it was goes on, its reads, its uploads and its jobs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cluster.nodes import SESSION_SECONDS, service_nodes
from tests.contract.speech import spoken
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, half_second
from tests.stub_engines import SPEECH, StubEngines

#: How long the engine takes for a job's speech, and how often the neighbour is restarted meanwhile. A night of it:
#: EARSHOT_TEST_JOB_SECONDS=600.
JOB_SECONDS = float(os.environ.get("EARSHOT_TEST_JOB_SECONDS", "40"))
RESTART_SECONDS = JOB_SECONDS / 10 + 2
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300 + 2 * JOB_SECONDS)]

JOBS = 8
SESSIONS = 16
#: An upload waits while the group settles: longer than this is a failure to a client with a deadline.
UPLOAD_SECONDS = 5.0

Pair = tuple[ServiceProcess, ServiceProcess]


@pytest.fixture
def engines() -> Iterator[tuple[StubEngines, StubEngines]]:
    """The engines of each node, so that they tell which of the nodes asked."""
    with StubEngines() as first, StubEngines() as second:
        yield first, second


@pytest.fixture
def nodes(engines: tuple[StubEngines, StubEngines], tmp_path: Path) -> Iterator[Pair]:
    """Two nodes that share the partitions."""
    patience: dict[str, str | int | float] = {"speech_timeout": 2 * JOB_SECONDS + 60, "speech_concurrency": JOBS}
    with service_nodes(tmp_path, *({**stub.settings, **patience} for stub in engines)) as (one, other):
        yield one.start(), other.start()


async def _restart(neighbour: ServiceProcess, kill: bool) -> None:
    if kill:
        await asyncio.to_thread(neighbour.kill)
    else:
        await asyncio.to_thread(neighbour.stop)
    await asyncio.to_thread(neighbour.start)


# --- jobs -------------------------------------------------------------------------------------------------------------


async def _post(client: Client, audio: bytes, number: int) -> str:
    answer = await client.ask(
        "POST",
        "/api/v1/analyze_file",
        files={"options": (None, '{"speech_analysis": true}'), "audio": ("talk.wav", audio, "audio/x-wav")},
        headers={"X-Api-Key": client.service.key, "Idempotency-Key": f"slow-{number}"},
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["job_id"])


async def _status(client: Client, job: str) -> str:
    answer = await client.ask("GET", f"/api/v1/jobs/{job}", headers={"X-Api-Key": client.service.key})
    assert answer.status_code == 200, answer.text
    return json.dumps(answer.json().get("result", {})) if answer.json()["status"] == "completed" else ""


async def _jobs(one: ServiceProcess, other: ServiceProcess, mine: StubEngines, others: StubEngines) -> Counter[int]:
    """Return how often both engines were asked for each job that the first node had before the restarts."""
    for stub in (mine, others):
        stub.seconds = JOB_SECONDS
    async with Client(one, give_up=2 * JOB_SECONDS + 60) as client:
        # Of different lengths, by which the engines tell them apart.
        jobs = [await _post(client, spoken(2 + number), number) for number in range(JOBS)]
        async with asyncio.timeout(20):
            while mine.calls[SPEECH] + others.calls[SPEECH] < JOBS:  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(0.1)
        assert 0 < mine.calls[SPEECH] < JOBS, "jobs of both nodes are needed"
        owned = set(mine.sizes)
        assert len(owned | set(others.sizes)) == JOBS
        began, kill = time.monotonic(), True
        while time.monotonic() - began < JOB_SECONDS / 2:
            # Its own jobs are in work at each of its deaths: three would be too many for them.
            await _restart(other, kill)
            kill = False
            await asyncio.sleep(RESTART_SECONDS)
        # At last it stays away, and its jobs come here; they need not last as long again.
        other.kill()
        mine.seconds = 0.0
        results = [await _finished(client, job) for job in jobs]
        assert all('"success"' in result for result in results), results
        asked = mine.sizes + others.sizes
        return Counter({size: asked[size] for size in owned})


async def _finished(client: Client, job: str) -> str:
    async with asyncio.timeout(2 * JOB_SECONDS + 60):
        while not (result := await _status(client, job)):  # noqa: ASYNC110 (it is in another process)
            await asyncio.sleep(0.3)
        return result


def test_jobs_are_not_run_again(nodes: Pair, engines: tuple[StubEngines, StubEngines]) -> None:
    """The engine is asked once for each, however often the neighbour is killed, stopped and started meanwhile."""
    assert set(asyncio.run(_jobs(*nodes, *engines)).values()) == {1}


# --- sessions ---------------------------------------------------------------------------------------------------------


async def _owned(one: ServiceProcess, other: ServiceProcess) -> list[Stream]:
    """Return sessions of the first node: those that it answers for while its neighbour is dead."""
    async with Client(one) as client, Client(other) as there:
        # A node opens sessions in partitions of its own.
        streams = [await (there if number % 2 else client).open() for number in range(SESSIONS)]
        for seed, stream in enumerate(streams):
            for _ in range(4):
                await client.put(stream, seed)
            await client.ask("GET", f"/audio_sessions/{stream.session}/status", params={"count": "1"})
        other.kill()
        answers = [await client.http.get(f"/audio_sessions/{stream.session}/status?count=1") for stream in streams]
    await asyncio.to_thread(other.start)
    owned = [stream for stream, answer in zip(streams, answers, strict=True) if answer.status_code == 200]
    assert 0 < len(owned) < SESSIONS
    return owned


async def _read(one: ServiceProcess, owned: list[Stream], done: asyncio.Event) -> Counter[str]:
    """Read the first window of each again and again, once each time."""
    answers: Counter[str] = Counter()
    async with httpx2.AsyncClient(base_url=one.url, timeout=20) as http:
        while not done.is_set():
            for stream in owned:
                answer = await http.get(f"/audio_sessions/{stream.session}/status?count=1")
                answers[f"{answer.status_code}" if answer.status_code == 200 else answer.text] += 1
            await asyncio.sleep(0.02)
    return answers


async def _upload(one: ServiceProcess, owned: list[Stream], done: asyncio.Event) -> Counter[str]:
    """Upload to each again and again; each upload is sent once."""
    answers: Counter[str] = Counter()
    async with httpx2.AsyncClient(base_url=one.url, timeout=20) as http:
        while not done.is_set():
            for stream in owned:
                began, number = time.monotonic(), len(stream.chunks)
                data = half_second(0, number)
                answer = await http.put(
                    f"/audio_sessions/{stream.session}/chunks/{number}",
                    json={"data": base64.b64encode(data).decode()},
                    headers={"Idempotency-Key": f"{number}"},
                )
                taken = answer.status_code == 200
                late = time.monotonic() - began > UPLOAD_SECONDS
                answers[("late" if late else "200") if taken else answer.text] += 1
                if taken:
                    stream.chunks.append(data)
            await asyncio.sleep(0.2)
    return answers


async def _through(one: ServiceProcess, other: ServiceProcess) -> tuple[Counter[str], Counter[str]]:
    owned, done = await _owned(one, other), asyncio.Event()
    work = asyncio.gather(_read(one, owned, done), _upload(one, owned, done))
    await asyncio.sleep(1.0)
    for kill in (True, False, True):
        await _restart(other, kill)
        await asyncio.sleep(2.0)
    # At last its partitions are taken over here, and those that were here stay.
    other.kill()
    await asyncio.sleep(SESSION_SECONDS + 4.0)
    done.set()
    reads, uploads = await work
    return reads, uploads


def test_what_stays_is_served(nodes: Pair) -> None:
    """Each read is answered 200, and each upload, though it may have to wait."""
    reads, uploads = asyncio.run(_through(*nodes))
    assert set(reads) == {"200"}, reads
    assert set(uploads) == {"200"}, uploads
