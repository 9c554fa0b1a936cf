"""A disk fills and gets room again, repeatedly, while clients stream: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.disks import Disk, mounted
from tests.lengths import length
from tests.process import ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, Stream
from tests.recovery.truth import ZEROS, expected_events, faults
from tests.waiting import until

STREAMS = 16
FILLS = length("FILLS", 1)
DISK_MB = 160
#: How long the disk stays full, and the limit for the service to serve again, or to end.
FULL_SECONDS = 1.0
ROOM_SECONDS = 5.0
END_SECONDS = 10.0

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300 + 30 * FILLS)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "data", DISK_MB) as disk:
        if disk is None:
            pytest.skip("no right to mount a small file system")
        yield disk


@pytest.fixture
def victim(disk: Disk) -> Iterator[ServiceProcess]:
    with ServiceProcess(disk.path) as process:
        yield process


class Watch:
    """A client that does not repeat requests."""

    def __init__(self, victim: ServiceProcess, disk: Disk) -> None:
        self.victim = victim
        self.disk = disk
        self.http = httpx2.AsyncClient(base_url=victim.url, timeout=10)

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.aclose()

    async def create(self) -> httpx2.Response:
        body = {"type": "stream", "content_type": CONTENT_TYPE}
        return await self.http.post("/audio_sessions/", json=body, headers={"X-Api-Key": self.victim.key})

    async def fill(self, read: str) -> None:
        """Fill the disk, and check for a while that writes are refused and reads are answered."""
        until = time.monotonic() + FULL_SECONDS
        refusals = 0
        while time.monotonic() < until or not refusals:
            assert time.monotonic() < until + 10, "writes are not refused"
            await asyncio.to_thread(self.disk.fill)
            answer = await self.create()
            if answer.status_code == 503:
                refusals += 1
                assert int(answer.headers["Retry-After"]) > 0
            assert (await self.http.get(f"/audio_sessions/{read}/status")).status_code == 200
            assert (await self.http.get("/healthz")).status_code == 200
            await asyncio.sleep(0.05)
        ready = await self.http.get("/readyz")
        assert (ready.status_code, ready.json()["notes"][0]) == (200, "writes are refused: the disk is full")

    async def ask_until_it_ends(self) -> None:
        with suppress(httpx2.TransportError):
            while True:
                await self.create()

    async def free(self) -> float:
        """Make room; return the seconds until the service is ready and accepts a write."""
        began = time.monotonic()
        self.disk.free()
        while (await self.http.get("/readyz")).status_code != 200 or (await self.create()).status_code != 200:
            assert time.monotonic() < began + 60, self.victim.tail()
            await asyncio.sleep(0.05)
        return time.monotonic() - began


async def _stream(client: Client, seed: int, stream: Stream, stop: asyncio.Event) -> None:
    pause = random.Random(seed)
    while not stop.is_set():
        await client.put(stream, seed)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause.uniform(0, 0.5))
    await client.seal(stream)


async def _chunks(client: Client, number: int) -> None:
    """Wait until `number` more are acknowledged."""
    due = client.acknowledged + number
    await until(lambda: client.acknowledged >= due, 60)


async def _read(victim: ServiceProcess, streams: list[Stream]) -> list[list[dict[str, object]]]:
    async with Client(victim) as client:
        return [await client.events(stream.session) for stream in streams]


async def test_full_disk_loses_nothing_acknowledged(victim: ServiceProcess, disk: Disk) -> None:
    stop = asyncio.Event()
    async with Watch(victim, disk) as watch, Client(victim) as client, asyncio.TaskGroup() as tasks:
        streams = [await client.open() for _ in range(STREAMS)]
        for seed, stream in enumerate(streams):
            tasks.create_task(_stream(client, seed, stream, stop))
        waits = []
        for _ in range(FILLS):
            await _chunks(client, 2 * STREAMS)
            await watch.fill(streams[0].session)
            waits.append(await watch.free())
        stop.set()
    truth = [expected_events(stream.chunks) for stream in streams]
    print(f"{sum(len(stream.chunks) for stream in streams)} chunks; served again after {waits} s")
    assert faults(await _read(victim, streams), truth) == ZEROS
    assert max(waits) < ROOM_SECONDS
    lines = [line for line in victim.log.read_text().splitlines() if "request refused" not in line]
    assert sum("disk.full" in line for line in lines) == sum("disk.has_room" in line for line in lines) <= 3 * FILLS
    async with Watch(victim, disk) as watch, asyncio.TaskGroup() as tasks:
        await watch.fill(streams[0].session)
        for _ in range(STREAMS):
            tasks.create_task(watch.ask_until_it_ends())
        began = time.monotonic()
        assert await asyncio.to_thread(victim.stop) == 0
        assert time.monotonic() - began < END_SECONDS
    disk.free()
    victim.start()
    assert faults(await _read(victim, streams), truth) == ZEROS
