"""A backup of several lanes under load, restored to other numbers of them, has every window that was acknowledged."""

import asyncio
from pathlib import Path

import pytest

from tests.lanes.machine import PARTITIONS
from tests.process import ServiceProcess
from tests.recovery.load import Client
from tests.recovery.truth import ZEROS, expected_events, faults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_backup_of_lanes_is_restored_to_any_number(tmp_path: Path) -> None:
    source = ServiceProcess(tmp_path / "source", lanes=3, partitions=PARTITIONS)
    with source:
        async with Client(source) as client:
            streams = [await client.stream(seed, 4) for seed in range(6)]
            busy = asyncio.gather(*(client.stream(100 + seed, 12) for seed in range(4)))
            said = await asyncio.to_thread(source.command, "backup", str(tmp_path / "backup"))
            await busy
    assert "log-2" in said
    for lanes in (1, 2):
        target = ServiceProcess(tmp_path / f"target-{lanes}", lanes=lanes, partitions=PARTITIONS)
        target.command("restore", str(tmp_path / "backup"))
        with target:
            async with Client(target) as client:
                read = [await client.events(stream.session) for stream in streams]
                assert await client.stream(7, 2)
        assert faults(read, [expected_events(stream.chunks) for stream in streams]) == ZEROS


def test_damaged_lane_is_salvaged(tmp_path: Path) -> None:
    machine = ServiceProcess(tmp_path / "data", lanes=2, partitions=PARTITIONS)
    with machine:
        pass
    (tmp_path / "data" / "log" / "lanes-1" / "1" / "log" / "CURRENT").unlink()
    assert "is damaged" in machine.command("salvage")
    with machine:
        assert machine.ask_ready() == '{"status":"ok"}'
