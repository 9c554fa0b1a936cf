"""Seconds until another node serves the partitions of a node killed by SIGKILL, minus the session timeout.

The broker counts the timeout from the node's last heartbeat, which may be a few seconds before the kill.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import audio, processes
from benchmarks.cases.setup import Setup, running_log
from benchmarks.client import LoadClient
from benchmarks.measures import Row, value_row
from benchmarks.plans import IdlePlan, Target
from benchmarks.processes import BenchmarkError, ServerProcess
from benchmarks.wire import HttpConnection, request

SESSION_TIMEOUT: Final = 15.0
BAR_SECONDS: Final = 2.0
#: Sessions that are watched, and those that only fill the tables.
WATCHED: Final = 64
IDLE: Final = 10_000
CHUNKS: Final = 4
#: Time for partitions to be assigned after a node has joined, and for a stand-by to catch up.
SETTLE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.02
GIVE_UP_SECONDS: Final = 180.0


def measure(setup: Setup) -> Iterator[Row]:
    if not setup.kafka:
        return
    seconds, moved = [], 0
    with processes.temporary_directory() as directory, running_log("kafka") as beside:
        settings = {**beside.settings, "database_url": f"sqlite:///{directory / 'control.db'}"}
        with processes.service(directory / "stays", **settings) as stays:
            processes.run_load(IdlePlan(stays.target(), setup.size(IDLE)))
            for _ in range(setup.pairs):
                served = asyncio.run(_round(stays, directory / "dies", settings))
                seconds.append(max(served) - SESSION_TIMEOUT)
                moved += sum(one > 1.0 for one in served)
    if moved < setup.pairs:
        raise BenchmarkError("the node that was ended owned nothing that was watched")
    beside_it = {"sessions that moved": moved / setup.pairs, "sessions": float(WATCHED)}
    yield value_row("takeover beyond the session timeout", seconds, "s", BAR_SECONDS, beside_it)


async def _round(stays: ServerProcess, data: Path, settings: dict[str, str]) -> list[float]:
    """Start a node, kill it by SIGKILL, and return the seconds until each session is served again."""
    with processes.service(data, **settings) as dies:
        await asyncio.sleep(SETTLE_SECONDS)
        clients = [await _open(dies.target(), stays.target()) for _ in range(WATCHED)]
        await asyncio.sleep(SETTLE_SECONDS)
        dies.kill()
        began = time.perf_counter()
        async with asyncio.timeout(GIVE_UP_SECONDS):
            served = await asyncio.gather(*(_served(client) for client in clients))
        for client in clients:
            client.connection.close()
        return [at - began for at in served]


async def _open(first: Target, second: Target) -> LoadClient:
    """Open a session with windows at one node, which may prefer its own partitions; go on at another."""
    client = await LoadClient.connect(first)
    await client.create("stream")
    for upload in client.uploads(audio.chunks(0), CHUNKS):
        await client.ask(*upload)
    while await client.windows(0) < CHUNKS - 1:
        pass
    client.connection.close()
    client.connection = await HttpConnection.open(second.port)
    return client


async def _served(client: LoadClient) -> float:
    """Return when (perf_counter) the session's windows are there and its next chunk is accepted."""
    await _until_ok(client, request("GET", f"/audio_sessions/{client.session}/status?offset={CHUNKS - 2}"))
    await _until_ok(client, *client.uploads(audio.chunks(0), CHUNKS + 1)[CHUNKS])
    return time.perf_counter()


async def _until_ok(client: LoadClient, *parts: bytes) -> None:
    """Repeat a request until the answer is 200.

    Raises:
        BenchmarkError: The answer is neither 200 nor 503.
    """
    while (answer := await client.connection.ask(*parts))[0] != 200:
        if answer[0] != 503:
            raise BenchmarkError(f"{answer[0]} {answer[1][:200]!r} to {parts[0][:80]!r}")
        await asyncio.sleep(PAUSE_SECONDS)
