"""A lane, or the supervisor, is killed: acknowledged chunks appear once and in order, and the other lanes go on."""

import asyncio
import random
import time
from pathlib import Path

import psutil
import pytest

from tests.lanes.machine import PARTITIONS, lane_processes, templates
from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import Client
from tests.recovery.truth import ZEROS, expected_events, faults
from tests.waiting import until

SESSIONS = 16
KILLS = length("LANE_KILLS", 2)
EACH = max(12, 100 * KILLS // SESSIONS)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + SESSIONS * EACH)]


def machine_at(data: Path, lanes: int = 2) -> ServiceProcess:
    return ServiceProcess(data, lanes=lanes, partitions=PARTITIONS)


async def test_acknowledged_chunks_survive_the_kill_of_a_lane(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}, {KILLS} kills")
    with machine_at(tmp_path / "data") as machine:
        # One connection pool a client: each meets the lanes in its own way.
        clients = [Client(machine) for _ in range(SESSIONS)]
        work = asyncio.gather(*(client.stream(SEED + number, EACH) for number, client in enumerate(clients)))
        for number in range(KILLS):
            point = SESSIONS * EACH * (number + chance.random()) / (KILLS + 1)
            while sum(client.acknowledged for client in clients) < point and not work.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not work.done()
            chance.choice(lane_processes(machine)).kill()
        streams = await work
        read = [await clients[0].events(stream.session) for stream in streams]
        assert faults(read, [expected_events(stream.chunks) for stream in streams]) == ZEROS
        assert len(lane_processes(machine)) == 2
        for client in clients:
            await client.http.aclose()


async def test_number_of_lanes_changes_at_random_with_kills(tmp_path: Path) -> None:
    """Each start has another number of lanes, and some are killed before they serve; the windows stay the same."""
    chance = random.Random(SEED)
    machine = machine_at(tmp_path / "data", 1)
    streams = []
    for number in range(length("LANE_CHANGES", 3)):
        machine.environment["EARSHOT_LANES"] = str(chance.choice([1, 2, 3, 4]))
        for _ in range(chance.randrange(2)):
            machine.start(wait=0)
            await asyncio.sleep(chance.uniform(0, 3))
            machine.kill()
        with machine:
            async with Client(machine) as client:
                streams.append(await client.stream(SEED + number, 4))
                read = [await client.events(stream.session) for stream in streams]
        assert faults(read, [expected_events(stream.chunks) for stream in streams]) == ZEROS, SEED


async def test_lanes_go_on_without_what_they_were_forked_from(tmp_path: Path) -> None:
    """Each of them starts again when it is needed: at the next start of a lane."""
    with machine_at(tmp_path / "data") as machine:
        clients = [Client(machine) for _ in range(SESSIONS)]
        work = asyncio.gather(*(client.stream(SEED + number, EACH) for number, client in enumerate(clients)))
        await until(lambda: all(client.acknowledged > 1 for client in clients))
        lanes = lane_processes(machine)
        before = templates(machine)
        assert len(before) == 2
        for template in before:
            template.kill()
        await asyncio.sleep(0.5)
        assert lane_processes(machine) == lanes
        lanes[1].kill()
        streams = await work
        read = [await clients[0].events(stream.session) for stream in streams]
        assert faults(read, [expected_events(stream.chunks) for stream in streams]) == ZEROS
        assert [one.name() for one in lane_processes(machine)] == ["lane 0", "lane 1"]
        assert lane_processes(machine)[0] == lanes[0]
        assert not {one.pid for one in templates(machine)} & {one.pid for one in before}
        for client in clients:
            await client.http.aclose()


@pytest.mark.parametrize("alone", [False, True], ids=["whole", "without templates"])
async def test_lanes_end_with_their_supervisor(tmp_path: Path, alone: bool) -> None:
    machine = machine_at(tmp_path / "data").start()
    assert machine.process is not None
    everything = psutil.Process(machine.process.pid).children(recursive=True)
    if alone:
        for template in templates(machine):
            template.kill()
    machine.kill()
    await until(lambda: not [one for one in everything if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])
    with machine:
        async with Client(machine) as client:
            assert await client.stream(SEED, 1)


def test_second_supervisor_is_refused(tmp_path: Path) -> None:
    with machine_at(tmp_path / "data") as machine:
        second = machine_at(tmp_path / "data", 4)
        second.start(wait=0)
        assert second.process is not None
        assert second.process.wait(60) == 1
        assert f"is in use by process {machine.process.pid}" in second.log.read_text()  # type: ignore[union-attr]


def test_damaged_lane_leaves_the_others_serving(tmp_path: Path) -> None:
    machine = machine_at(tmp_path / "data")
    with machine:
        pass
    for table in (tmp_path / "data" / "log" / "lanes-1" / "1" / "log").glob("CURRENT"):
        table.unlink()
    machine.start(wait=0)
    deadline = time.monotonic() + 60
    while "a lane has failed" not in machine.ask_ready():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert machine.stop() == 0
    assert "CURRENT is missing" in machine.log.read_text()
