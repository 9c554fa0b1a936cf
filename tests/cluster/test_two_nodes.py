"""Two nodes on one Kafka: each takes any request, and when one dies the other continues its sessions."""

import asyncio

import pytest

from infra import models
from tests import sse
from tests.cluster.nodes import Pair
from tests.contract.api import tone, wav
from tests.recovery.load import Client, Stream
from tests.recovery.truth import expected_events

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 8
CHUNKS = 6


async def _put_all(client: Client, streams: list[Stream]) -> None:
    for seed, stream in enumerate(streams):
        await client.put(stream, seed)


async def _check(client: Client, streams: list[Stream]) -> None:
    for stream in streams:
        assert await client.events(stream.session) == expected_events(stream.chunks, models.directory("sed_mini"))


async def test_sessions_reach_owner_and_survive_its_death(nodes: Pair) -> None:
    """Uploads through both nodes; one dies; the other takes over; the first returns and serves again."""
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        streams = [await (first if number % 2 else second).open() for number in range(SESSIONS)]
        # Uploads alternate between the nodes, so half of them must be forwarded.
        for turn in range(CHUNKS):
            await _put_all(first if turn % 2 else second, streams)
        for client in (first, second):
            listed, missing = await client.listed(3)
            assert (sorted(listed), missing) == (sorted(s.session for s in streams), None)
        before = len(two.log.read_text())
        one.kill()
        listed, missing = await second.listed(3)
        if missing is None:
            assert "node.ready" in two.log.read_text()[before:], "the partitions of a node that is away are missing"
        else:
            assert set(listed) < {s.session for s in streams}
        await _put_all(second, streams)
        assert sorted((await second.listed(3))[0]) == sorted(s.session for s in streams)
        for stream in streams:
            await second.seal(stream)
        await _check(second, streams)
        await asyncio.to_thread(one.start)
        await _check(first, streams)


JOBS = 6


async def _post(client: Client, number: int) -> str:
    """Post a job under a key that the other node may own."""
    return await client.job(wav(tone(5.0)), {"sound_event_detection": True}, f"job-{number}")


async def _completed(client: Client, job: str) -> int:
    """Follow a job on the event stream across nodes; return the number of windows in its result."""
    async with asyncio.timeout(client.give_up):
        while True:
            answer = await client.ask("GET", f"/api/v1/jobs/{job}/stream")
            assert answer.status_code == 200, answer.text
            for name, _, result in sse.events(answer.text.splitlines()):
                if name == "completed":
                    return len(result["sound_event_detection"]["results"])
            await asyncio.sleep(0.1)


async def test_jobs_are_accepted_anywhere_and_survive_node_death(nodes: Pair) -> None:
    """Posted to either node, repeated at the other, followed through a node that does not own them."""
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        early = [await _post(first if number % 2 else second, number) for number in range(JOBS)]
        # Each repeat goes to the other node.
        assert [await _post(second if number % 2 else first, number) for number in range(JOBS)] == early
        assert [await _completed(second, job) for job in early] == [4] * JOBS
        late = [await _post(first, number) for number in range(JOBS, 2 * JOBS)]
        one.kill()
        assert [await _completed(second, job) for job in (*early, *late)] == [4] * (2 * JOBS)
