"""Seconds of sessions are in the ledger once, whatever dies between analysis, ledger and log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.process import ADMIN_KEY, ServiceProcess
from tests.recovery.load import Client, half_second

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SESSIONS = 12
CHUNKS = 8
KILLS = 3


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[ServiceProcess]:
    process = ServiceProcess(tmp_path / "data", model="sed-mini")
    yield process.start()
    process.stop()


async def stream(client: Client, number: int) -> float:
    """Stream a session to its end, and delete every third one; return the end of its last window, seconds."""
    session = (await client.open()).session
    for sequence in range(CHUNKS):
        await client.upload(session, sequence, half_second(number, sequence))
    path = f"/audio_sessions/{session}"
    answer = await client.ask("PATCH", path, json={"make_readonly": True})
    assert answer.status_code == 204
    while True:
        status = (await client.ask("GET", f"{path}/status")).json()
        if not status["inference"]["in_progress"]:
            break
    if number % 3 == 0:
        assert (await client.ask("DELETE", path)).status_code in (204, 404)
    return float(status["inference"]["results"][-1]["end_time"])


def usage(service: ServiceProcess) -> list[dict[str, object]]:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    query = {"service": "audio_session", "lines": "true"}
    rows: list[dict[str, object]] = httpx2.get(f"{service.url}/admin/v1/usage", params=query, headers=headers).json()
    return rows


def test_sessions_are_billed_once_through_kills(victim: ServiceProcess) -> None:
    async def story() -> list[float]:
        async with Client(victim, give_up=120) as client:
            work = asyncio.gather(*(stream(client, number) for number in range(SESSIONS)))
            for _ in range(KILLS):
                await asyncio.sleep(1.5)
                victim.kill()
                await asyncio.to_thread(victim.start)
            return await work

    ends = asyncio.run(story())
    # Killed once more: the last lines may be in the ledger while the log does not say so.
    victim.kill()
    victim.start()
    for _ in range(100):
        rows = usage(victim)
        if len(rows) == SESSIONS:
            break
        asyncio.run(asyncio.sleep(0.1))
    assert len({row["job"] for row in rows}) == SESSIONS
    assert sorted(float(str(row["audio_seconds"])) for row in rows) == sorted(ends)
    victim.stop()
    outcome = json.loads(victim.command("usage", "--recount", "--format", "json"))
    assert outcome == []
