"""`earshot restart`: the lanes restart one after another, while streams go on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from earshot_client import AsyncClient, SessionOptions, WindowHeard
from tests.lanes.machine import PARTITIONS, lane_processes
from tests.process import KEY, ServiceProcess
from tests.recovery.load import CONTENT_TYPE, Client, Stream, half_second
from tests.recovery.truth import ZEROS, expected_events, faults
from tests.waiting import until

SESSIONS = 8
SESSION = SessionOptions("stream", CONTENT_TYPE)

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


async def test_sockets_go_on_and_return_to_their_lanes(tmp_path: Path) -> None:
    """Each window comes once and in order; no socket stays behind a tunnel of another lane."""
    stopping = asyncio.Event()

    async def spoken(seed: int) -> AsyncIterator[bytes]:
        sent = 0
        while not stopping.is_set() or sent < 4:
            yield half_second(seed, sent)
            sent += 1
            await asyncio.sleep(0.1)

    async def stream(client: AsyncClient, seed: int) -> None:
        async with client.socket(session=SESSION) as socket:
            heard = [event.window async for event in socket.stream(spoken(seed)) if isinstance(event, WindowHeard)]
            assert heard == list(range(len(heard)))
            assert len(heard) == socket.next_chunk - 1

    with ServiceProcess(tmp_path / "data", lanes=2, partitions=PARTITIONS) as machine:
        async with AsyncClient(machine.url, KEY) as client:
            streams = asyncio.gather(*(stream(client, seed) for seed in range(SESSIONS)))
            await asyncio.sleep(1)
            machine.command("restart")
            await until(lambda: "service.restarted" in machine.log.read_text(), 120)
            # All have returned soon after, if none stays behind.
            await until(lambda: ports(machine) == {machine.port})
            stopping.set()
            await streams


def ports(machine: ServiceProcess) -> set[int]:
    """Return the ports to which the connections of all lanes go."""
    opened = [one for lane in lane_processes(machine) for one in lane.net_connections("tcp") if one.raddr]
    return {one.laddr.port for one in opened}


def test_service_with_one_lane_is_not_restarted(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as machine:
        machine.command("restart")
        assert machine.ask_ready() == '{"status":"ok"}'
        assert "there is one lane" in machine.log.read_text()
