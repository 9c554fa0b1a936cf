"""Two nodes on one Kafka: any of them takes any request, and when one dies the other goes on with its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import own_log
from tests.process import ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, Stream
from tests.recovery.truth import expected_events
from topics.records import Opened

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 8
CHUNKS = 6

Pair = tuple[ServiceProcess, ServiceProcess]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Pair]:
    """Two nodes that share a Kafka and a control-plane database."""
    database = f"sqlite:///{tmp_path / 'control.db'}"
    with own_log("kafka") as settings:
        first, second = (ServiceProcess(tmp_path / name, database_url=database, **settings) for name in ("one", "two"))
        yield first.start(), second.start()
        for node in (first, second):
            node.stop()


async def _open_on_each(first: Client, second: Client) -> list[Stream]:
    return [await (first if number % 2 else second).open() for number in range(SESSIONS)]


async def _put_all(client: Client, streams: list[Stream]) -> None:
    for seed, stream in enumerate(streams):
        await client.put(stream, seed)


async def _check(client: Client, streams: list[Stream]) -> None:
    opened = Opened("", "stream", CONTENT_TYPE, "", 1000, 500, default_sensitivity=-2)
    for stream in streams:
        assert await client.events(stream.session) == expected_events(opened, stream.chunks)


async def _story(one: ServiceProcess, two: ServiceProcess) -> None:
    async with Client(one) as first, Client(two) as second:
        streams = await _open_on_each(first, second)
        # Each upload goes to the node that was not asked before: half of them have to be passed on.
        for turn in range(CHUNKS):
            await _put_all(first if turn % 2 else second, streams)
        one.kill()
        await _put_all(second, streams)
        for stream in streams:
            sealed = await second.ask("PATCH", f"/audio_sessions/{stream.session}", json={"make_readonly": True})
            assert sealed.status_code == 204
        await _check(second, streams)
        await asyncio.to_thread(one.start)
        await _check(first, streams)


def test_requests_reach_the_owner_and_survive_its_death(nodes: Pair) -> None:
    """Uploads through both nodes; one dies; the other takes over; the first comes back and answers as well."""
    asyncio.run(_story(*nodes))
