"""A neighbour restarts repeatedly: partitions that stay keep serving reads, uploads and jobs."""

import asyncio
import base64
from collections import Counter
from collections.abc import Iterator

import httpx2
import pytest

from tests.cluster.nodes import Pair, Settings
from tests.contract.speech import spoken
from tests.lengths import length
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream, half_second
from tests.stub_engines import SPEECH, StubEngines
from tests.waiting import until

#: Restarts of the neighbour while the engine works on each job.
RESTARTS = length("RESTARTS", 2)
#: Time limit of the engine for a job's speech, and of tests for a job.
JOB_SECONDS = 240 + 30 * RESTARTS
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300 + JOB_SECONDS)]

#: Jobs, and the most if all happen to be of one node.
JOBS, MOST_JOBS = 8, 32
SESSIONS = 8


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[StubEngines, StubEngines]]:
    """One set of engines per node, to show which node sent a request."""
    with StubEngines() as first, StubEngines() as second:
        yield first, second


@pytest.fixture(scope="module")
def settings(engines: tuple[StubEngines, StubEngines]) -> list[Settings]:
    shared = {"speech_timeout": JOB_SECONDS, "speech_concurrency": MOST_JOBS}
    return [{**stub.settings, **shared} for stub in engines]


async def _opened(one: ServiceProcess, other: ServiceProcess) -> tuple[list[Stream], str]:
    """Return sessions of the first node, and one of its neighbour: a node opens them in its own partitions."""
    async with Client(one) as client, Client(other) as there:
        owned = [await client.open() for _ in range(SESSIONS)]
        foreign = await there.open()
        for seed, stream in enumerate([*owned, foreign]):
            for _ in range(4):
                await client.put(stream, seed)
            await client.status(stream.session, count="1")
    return owned, foreign.session


async def _read(one: ServiceProcess, owned: list[Stream], answers: Counter[str]) -> None:
    """Read the first window of each session in an endless loop, once each per round."""
    async with httpx2.AsyncClient(base_url=one.url, timeout=20) as http:
        while True:
            for stream in owned:
                answer = await http.get(f"/audio_sessions/{stream.session}/status?count=1")
                answers[f"{answer.status_code}" if answer.status_code == 200 else answer.text] += 1
            await asyncio.sleep(0.02)


async def _upload(one: ServiceProcess, owned: list[Stream], answers: Counter[str]) -> None:
    """Upload to each session in an endless loop; an upload that waits too long for the log gets 503."""
    async with httpx2.AsyncClient(base_url=one.url, timeout=20) as http:
        while True:
            for stream in owned:
                number = len(stream.chunks)
                data = half_second(0, number)
                answer = await http.put(
                    f"/audio_sessions/{stream.session}/chunks/{number}",
                    json={"data": base64.b64encode(data).decode()},
                    headers={"Idempotency-Key": f"{number}"},
                )
                answers["200" if answer.status_code == 200 else answer.text] += 1
                if answer.status_code == 200:
                    stream.chunks.append(data)
            await asyncio.sleep(0.2)


async def _jobs(client: Client, mine: StubEngines, others: StubEngines) -> list[str]:
    """Post jobs until each node has some; the engines, which hold them, identify them by length."""
    jobs = list[str]()
    # Ids are random, and jobs of both nodes are needed.
    while len(jobs) < JOBS or not (mine.calls[SPEECH] and others.calls[SPEECH]):
        jobs.append(await client.job(spoken(2 + len(jobs)), {"speech_analysis": True}, f"slow-{len(jobs)}"))
        await until(lambda: mine.calls[SPEECH] + others.calls[SPEECH] >= len(jobs), 60)
    assert len({*mine.sizes, *others.sizes}) == len(jobs)
    return jobs


async def test_kept_partitions_are_served_across_neighbour_restarts(
    nodes: Pair, engines: tuple[StubEngines, StubEngines]
) -> None:
    """Each read and each upload is answered 200, possibly after a delay, and the engine gets each job once."""
    (one, other), (mine, others) = nodes, engines
    for stub in engines:
        stub.open.clear()
    reads, uploads = Counter[str](), Counter[str]()
    owned, foreign = await _opened(one, other)
    async with Client(one, give_up=JOB_SECONDS) as client:
        jobs = await _jobs(client, mine, others)
        kept = set(mine.sizes)

        async def rounds() -> None:
            """Wait for two more rounds of reads and uploads."""
            due = [answers.total() + 2 * len(owned) for answers in (reads, uploads)]
            await until(lambda: reads.total() >= due[0] and uploads.total() >= due[1], 60)

        work = asyncio.gather(_read(one, owned, reads), _upload(one, owned, uploads))
        try:
            await rounds()
            for number in range(RESTARTS):
                await asyncio.to_thread(other.stop if number % 2 else other.kill)
                await asyncio.to_thread(other.start)
                await rounds()
            # Finally it stays away, and its sessions and jobs move here.
            other.kill()
            mine.open.set()
            assert (await client.status(foreign)).status_code == 200
            async with asyncio.timeout(JOB_SECONDS):
                results = [await client.result(job) for job in jobs]
            await rounds()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    assert set(reads) == {"200"}, reads
    assert set(uploads) == {"200"}, uploads
    assert all(result["speech_analysis"]["status"] == "success" for result in results), results
    asked = mine.sizes + others.sizes
    assert {asked[size] for size in kept} == {1}
