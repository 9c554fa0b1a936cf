"""Seconds from start to ready when the tables are gone and are rebuilt from the changelog."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import audio, processes
from benchmarks.cases.setup import Setup, running_log
from benchmarks.client import LoadClient
from benchmarks.measures import Row, value_row
from benchmarks.plans import IdlePlan, LivePlan, Target
from benchmarks.processes import BenchmarkError, ServerProcess

IDLE: Final = 30_000
#: Streams with windows, and chunks of each: 7,616 windows.
STREAMS: Final = 64
CHUNKS: Final = 120
BAR_SECONDS: Final = {"embedded": None, "kafka": 6.0}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row per log, after comparing the windows of one session before and after."""
    idle, chunks = setup.size(IDLE), setup.size(CHUNKS)
    for log in setup.logs():
        with processes.temporary_directory() as directory, running_log(log) as beside:
            data = directory / "data"
            with processes.service(data, **beside.settings) as server:
                processes.run_load(IdlePlan(server.target(), idle))
                processes.run_load(LivePlan(server.target(), STREAMS, chunks))
                session = asyncio.run(_stream(server.target(), chunks))
                windows = _windows(server, session)
            seconds = []
            for _ in range(setup.pairs):
                _delete_tables(data)
                began = time.perf_counter()
                with processes.service(data, **beside.settings) as server:
                    seconds.append(time.perf_counter() - began)
                    if _windows(server, session) != windows:
                        raise BenchmarkError("the windows of a session are others after the rebuild")
        figures = {"idle sessions": float(idle), "windows": float(STREAMS * (chunks - 1))}
        yield value_row(f"rebuild, {log}", seconds, "s", BAR_SECONDS[log], figures)


def _delete_tables(data: Path) -> None:
    tables = list(data.glob("tables*"))
    if not tables:
        raise BenchmarkError(f"{data} has no tables to delete")
    for directory in tables:
        shutil.rmtree(directory)


async def _stream(target: Target, chunks: int) -> str:
    """Upload a session's chunks and wait for its windows; return its id."""
    client = await LoadClient.connect(target)
    session = await client.create("stream")
    for request in client.uploads(audio.chunks(0), chunks):
        await client.ask(*request)
    read = 0
    while read < chunks - 1:
        read += await client.windows(read)
    return session


def _windows(server: ServerProcess, session: str) -> Any:
    return json.loads(processes.get(server.port, f"/audio_sessions/{session}/status"))["inference"]["results"]
