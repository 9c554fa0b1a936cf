"""A project's live stream covers sessions of two nodes, while one dies and the other takes over."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.cluster.nodes import Pair
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSIONS = 4


class Listener:
    """Reads a stream of events in the background."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.windows: defaultdict[str, set[int]] = defaultdict(set)

    async def read(self, service: ServiceProcess) -> None:
        async with (
            httpx2.AsyncClient(base_url=service.url, timeout=60) as http,
            http.stream("GET", "/api/v1/live", headers={"X-Api-Key": service.key}) as answer,
        ):
            name = ""
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data = json.loads(value)
                    self.events.append((name, data))
                    if name == "window":
                        self.windows[data["session_id"]].add(data["window"])

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition, 60)


@asynccontextmanager
async def listening(service: ServiceProcess) -> AsyncIterator[Listener]:
    listener = Listener()
    task = asyncio.create_task(listener.read(service))
    yield listener
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_stream_covers_sessions_of_all_nodes(nodes: Pair) -> None:
    """One node serves the stream; the other one dies, and its sessions go on at the first."""
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        streams: list[Stream] = [await (first if number % 2 else second).open() for number in range(SESSIONS)]
        ids = {stream.session for stream in streams}
        async with listening(one) as heard:
            await heard.until(lambda: {data["session_id"] for name, data in heard.events if name == "session"} == ids)
            for _ in range(4):
                for seed, stream in enumerate(streams):
                    await first.put(stream, seed)
            await heard.until(lambda: set(heard.windows) == ids and all(map({0, 1}.issubset, heard.windows.values())))
            assert all(data["session_id"] in ids for name, data in heard.events if name != "missing")
            two.kill()
            await heard.until(lambda: any(name == "missing" and data["partitions"] for name, data in heard.events))
            before = {session: max(windows) for session, windows in heard.windows.items()}
            for _ in range(4):
                for seed, stream in enumerate(streams):
                    await first.put(stream, seed)
            await heard.until(lambda: all(max(heard.windows[session]) > before[session] + 1 for session in ids))
            await heard.until(lambda: [data["partitions"] for name, data in heard.events if name == "missing"][-1] == 0)
        for session, windows in heard.windows.items():
            assert windows == set(range(max(windows) + 1)), f"{session} has holes"
