"""`earshot restart`: the lanes restart one after another, while streams go on."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.lanes.machine import PARTITIONS, lane_processes
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import ZEROS, expected_events, faults
from tests.waiting import until

SESSIONS = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_streams_go_on_while_lanes_restart(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data", lanes=2, partitions=PARTITIONS) as machine:
        before = {one.pid for one in lane_processes(machine)}
        clients = [Client(machine) for _ in range(SESSIONS)]
        stopping = asyncio.Event()

        async def stream(client: Client, seed: int) -> Stream:
            opened = await client.open()
            while not stopping.is_set() or len(opened.chunks) < 4:
                await client.put(opened, seed)
                await asyncio.sleep(0.1)
            await client.seal(opened)
            return opened

        work = asyncio.gather(*(stream(client, seed) for seed, client in enumerate(clients)))
        await until(lambda: all(client.acknowledged > 1 for client in clients))
        assert f"Process {machine.process.pid}" in machine.command("restart")  # type: ignore[union-attr]
        await until(lambda: "service.restarted" in machine.log.read_text(), 120)
        stopping.set()
        streams = await work
        read = [await clients[0].events(stream.session) for stream in streams]
        assert faults(read, [expected_events(stream.chunks) for stream in streams]) == ZEROS
        assert not before & {one.pid for one in lane_processes(machine)}
        for client in clients:
            await client.http.aclose()
    lines = [json.loads(line) for line in machine.log.read_text().splitlines() if line.startswith("{")]
    stopped = [line.get("lane") for line in lines if line["event"] == "service.stopped"]
    assert sorted(stopped, key=str) == [0, 0, 1, 1, None], "each lane stops in its turn, and again at the end"


def test_service_with_one_lane_is_not_restarted(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as machine:
        machine.command("restart")
        assert machine.ask_ready() == '{"status":"ok"}'
        assert "there is one lane" in machine.log.read_text()
