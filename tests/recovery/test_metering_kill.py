"""Session seconds are in the ledger once, whatever is killed between analysis, ledger and log."""

import asyncio
import json
import random

import pytest

from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.conftest import ON_EMBEDDED
from tests.recovery.load import Client, kill_on_the_way
from tests.waiting import wait_for
from topics import keys

SESSIONS = 12
KILLS = length("KILLS", 2)
#: Chunks of each session.
CHUNKS = 3 * KILLS

pytestmark = [ON_EMBEDDED, pytest.mark.slow, pytest.mark.timeout(240 + 10 * KILLS)]


@pytest.fixture
def settings() -> dict[str, str]:
    return {"model": "sed-mini"}


async def stream(client: Client, seed: int) -> tuple[str, float]:
    """Stream a session to its end; return it, and the end of its last window in seconds."""
    session = (await client.stream(seed, CHUNKS)).session
    events = await client.events(session)
    return session, float(events[-1]["end_time"])


def usage(service: ServiceProcess) -> list[dict[str, object]]:
    query = {"service": "audio_session", "lines": "true"}
    rows: list[dict[str, object]] = service.operate("GET", "/usage", params=query)
    return rows


async def test_sessions_are_billed_once_through_kills(victim: ServiceProcess) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    async with Client(victim, give_up=120) as client:
        work = asyncio.gather(*(stream(client, seed) for seed in range(SESSIONS)))
        total = SESSIONS * CHUNKS
        await kill_on_the_way(victim, work, lambda: client.acknowledged, total, KILLS, random.Random(SEED))
        ended = await work
        # Half a second after its results a session may be deleted, and the node killed.
        await asyncio.sleep(1)
        for session, _ in ended[::2]:
            await client.delete(session)
    victim.kill()
    victim.start()
    wait_for(lambda: len(usage(victim)) >= SESSIONS)
    assert {row["job"]: row["audio_seconds"] for row in usage(victim)} == {
        keys.shown(id): seconds for id, seconds in ended
    }
    victim.stop()
    assert json.loads(victim.command("usage", "--recount", "--format", "json")) == []
