"""Models are taken into use under load: no window is lost, and each session is one model's from end to end."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infra import models
from infra.models.registry import Registry
from streams.models.manifest import FILE, read
from tests.process import ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, Stream
from tests.recovery.truth import expected_events
from topics.sessions.records import Opened

CLIENTS = 6
SESSIONS_EACH = 4
CHUNKS = 6
SWAP_SECONDS = 1.5

OPENED = Opened("", "stream", CONTENT_TYPE, "", 1000, 500, default_sensitivity=-2)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def _variant(directory: Path) -> Path:
    """Write the bundled model with every second tag and other points."""
    bundled = models.directory()
    known = read(bundled)
    tags = tuple(msgspec.structs.replace(tag, point=tag.point / 2) for tag in known.tags[::2])
    shutil.copytree(bundled, directory)
    (directory / FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(known, tags=tags)))
    return directory


async def _clients(service: ServiceProcess, client: Client) -> list[Stream]:
    async def one(number: int) -> list[Stream]:
        return [await client.stream(100 * number + turn, CHUNKS) for turn in range(SESSIONS_EACH)]

    return list(itertools.chain.from_iterable(await asyncio.gather(*map(one, range(CLIENTS)))))


async def _swap(registry: Registry, names: list[str], work: asyncio.Task[list[Stream]]) -> int:
    for swaps, name in enumerate(itertools.cycle(names)):
        await asyncio.wait({work}, timeout=SWAP_SECONDS)
        if work.done():
            return swaps
        await asyncio.to_thread(registry.use, name)
    raise AssertionError


async def _run(service: ServiceProcess, registry: Registry, names: list[str]) -> tuple[list[Stream], list[Any], int]:
    async with Client(service) as client:
        work = asyncio.create_task(_clients(service, client))
        swaps = await _swap(registry, names, work)
        streams = await work
        return streams, [await client.events(stream.session) for stream in streams], swaps


def test_models_change_under_load(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "data")
    service.start()
    try:
        registry = Registry(service.data)
        added = registry.add(_variant(tmp_path / "variant"))
        names = [added.model_id, read(models.directory()).model_id]
        streams, read_back, swaps = asyncio.run(_run(service, registry, names))
        assert service.stop() == 0, service.tail()
    finally:
        service.stop()
    used = [0, 0]
    for stream, events in zip(streams, read_back, strict=True):
        truths = [expected_events(OPENED, stream.chunks, model) for model in (models.directory(), added.directory)]
        assert len(events) == len(truths[0])
        used[truths.index(events)] += 1
    assert swaps > 1
    assert min(used) > 0, f"{swaps} changes, but one model scored every session"
    assert 1 <= service.log.read_text().count("model.used") <= swaps
