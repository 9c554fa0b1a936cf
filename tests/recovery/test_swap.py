"""Models are replaced under load: no window is lost, and each session uses one model throughout."""

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infra import models
from infra.models.registry import Registry
from streams.models.manifest import FILE, Context, read
from tests.lengths import length
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import expected_events
from tests.waiting import until

CLIENTS = 6
CHUNKS = 6
SWAPS = length("SWAPS", 3)
#: Minimum sessions of each model.
SESSIONS = 3


pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 20 * SWAPS)]


def variant(directory: Path) -> Path:
    """Write the bundled model with every second tag and other points."""
    bundled = models.directory()
    known = read(bundled)
    assert known.second is not None
    second = msgspec.structs.replace(
        known.second,
        tags=known.second.tags[::2],
        stream=_halved(known.second.stream),
        recording=_halved(known.second.recording),
    )
    shutil.copytree(bundled, directory)
    changed = msgspec.structs.replace(known, tags=known.tags[::2], second=second)
    (directory / FILE).write_bytes(msgspec.json.encode(changed))
    return directory


def _halved(look: Context) -> Context:
    return msgspec.structs.replace(look, points=tuple(point / 2 for point in look.points[::2]))


def _swaps(service: ServiceProcess) -> int:
    return service.log.read_text().count("model.used")


async def _run(service: ServiceProcess, registry: Registry, names: list[str]) -> tuple[list[Stream], list[Any]]:
    streams: list[Stream] = []
    done = asyncio.Event()
    seeds = itertools.count()

    async def one(client: Client) -> None:
        while not done.is_set():
            streams.append(await client.stream(next(seeds), CHUNKS))

    async def more() -> None:
        """Wait for sessions opened after the call."""
        due = len(streams) + CLIENTS + SESSIONS
        await until(lambda: len(streams) >= due, 240)

    async with Client(service) as client, asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(one(client))
        await more()
        for swaps in range(SWAPS):
            await asyncio.to_thread(registry.use, names[swaps % 2])
            async with asyncio.timeout(60):
                while _swaps(service) <= swaps:  # noqa: ASYNC110 (it is in another process)
                    await asyncio.sleep(0.1)
            await more()
        done.set()
    async with Client(service) as client:
        return streams, [await client.events(stream.session) for stream in streams]


def test_model_swaps_under_load_lose_no_window(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service:
        registry = Registry(service.data)
        added = registry.add(variant(tmp_path / "variant"))
        names = [added.model_id, read(models.directory()).model_id]
        streams, read_back = asyncio.run(_run(service, registry, names))
    used = [0, 0]
    for stream, events in zip(streams, read_back, strict=True):
        truths = [expected_events(stream.chunks, model) for model in (models.directory(), added.directory)]
        assert len(events) == len(truths[0])
        used[truths.index(events)] += 1
    assert min(used) >= SESSIONS, used
    assert _swaps(service) == SWAPS
