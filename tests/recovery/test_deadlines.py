"""Deadlines count only time in which the service could have met them: no backlog, and no absence, however many."""

import asyncio
from pathlib import Path

import pytest

from tests.process import ServiceProcess
from tests.recovery.conftest import ON_EMBEDDED
from tests.recovery.load import Client, Stream
from tests.recovery.test_swap import variant
from tests.recovery.truth import expected_events

IDLE_SECONDS = 8
#: How much later than its idle time a session may go, in service time.
LATE_SECONDS = 60
RESTARTS = 2
#: After this time of service, what is due is gone.
SWEPT_SECONDS = 1.5
CHUNKS = 8

pytestmark = [ON_EMBEDDED, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that the service lacks without this setting."""
    return variant(tmp_path / "variant")


@pytest.fixture
def settings(model: Path) -> dict[str, str]:
    return {"session_idle_seconds": str(IDLE_SECONDS), "model": str(model)}


async def _send(client: Client, stream: Stream) -> None:
    for _ in range(CHUNKS):
        await client.put(stream, 1)


async def _is_there(client: Client, stream: Stream) -> bool:
    return (await client.status(stream.session)).status_code == 200


async def _waits(client: Client, stream: Stream) -> bool:
    answer = await client.status(stream.session)
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["inference"]["in_progress"])


async def _analysed(client: Client, stream: Stream) -> None:
    while await _waits(client, stream):  # noqa: ASYNC110 (it is in another process)
        await asyncio.sleep(0.1)


async def _gone(client: Client, stream: Stream, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while await _is_there(client, stream):  # noqa: ASYNC110 (it is in another process)
            await asyncio.sleep(0.2)


async def _restart(victim: ServiceProcess, away: float) -> None:
    await asyncio.to_thread(victim.kill)
    await asyncio.sleep(away)
    await asyncio.to_thread(victim.start)


async def test_sessions_outlive_backlog_and_absence_and_then_expire(victim: ServiceProcess, model: Path) -> None:
    async with Client(victim) as client:
        sealed, unsealed = streams = await client.open(), await client.open()
        # Without their model, they wait.
        del victim.environment["EARSHOT_MODEL"]
        await _restart(victim, 0)
        other = await client.open()
        for stream in (*streams, other):
            await _send(client, stream)
        await client.seal(sealed)
        await _gone(client, other, IDLE_SECONDS + LATE_SECONDS)
        truth = [await asyncio.to_thread(expected_events, stream.chunks, model) for stream in streams]
        assert all([await _waits(client, stream) for stream in streams])
        victim.environment["EARSHOT_MODEL"] = str(model)
        await _restart(victim, IDLE_SECONDS)
        await client.seal(unsealed)
        await asyncio.gather(*(_analysed(client, stream) for stream in streams))
        assert [await client.events(stream.session) for stream in streams] == truth
        # Nobody could read the results while the service was away.
        for _ in range(RESTARTS):
            await _restart(victim, IDLE_SECONDS)
            await asyncio.sleep(SWEPT_SECONDS)
            assert all([await _is_there(client, stream) for stream in streams])
        for stream in streams:
            await _gone(client, stream, IDLE_SECONDS + LATE_SECONDS)
