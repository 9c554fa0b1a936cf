"""Lanes on Kafka: each is a member of the group of nodes, beside a node that has none."""

import asyncio
import random
from pathlib import Path

import pytest

from infra import models
from tests.cluster.nodes import service_nodes, start
from tests.lanes.machine import lane_processes, metric
from tests.lengths import SEED, length
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import ZEROS, expected_events, faults
from tests.waiting import until

SESSIONS = 8
KILLS = length("KAFKA_LANE_KILLS", 2)
SED_MINI = models.directory("sed_mini")

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300 + 60 * KILLS)]


async def _stream(client: Client, seed: int, stopping: asyncio.Event) -> Stream:
    stream = await client.open()
    while not stopping.is_set():
        await client.put(stream, seed)
        await asyncio.sleep(0.1)
    await client.seal(stream)
    return stream


async def _shared_out(machine: ServiceProcess, node: ServiceProcess) -> None:
    """Wait until each lane and the node have two partitions, as all of them say."""
    expected = [
        (f"http://127.0.0.1:{machine.port + 1}", 0, 2),
        (f"http://127.0.0.1:{machine.port + 2}", 1, 2),
        (node.url, None, 2),
    ]

    def said() -> list[object]:
        found = [(one["url"], one["node"] or {}) for one in machine.operate("GET", "/nodes")["nodes"]]
        return [(url, facts.get("lane"), len(facts.get("partitions", ()))) for url, facts in found]

    await until(lambda: sorted(said(), key=str) == sorted(expected, key=str), 120)


async def _all_go_on(clients: list[Client]) -> None:
    goals = [(client, client.acknowledged + 2) for client in clients]
    await until(lambda: all(client.acknowledged >= goal for client, goal in goals), 120)


async def test_streams_survive_kills_and_a_restart_of_lanes(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}, {KILLS} kills")
    with service_nodes(tmp_path, {"lanes": 2}, {}, partitions=6, kafka_session_seconds=60) as nodes:
        machine, node = nodes
        start(*nodes)
        await _shared_out(machine, node)
        clients = [Client(nodes[number % 2], nodes[1 - number % 2]) for number in range(SESSIONS)]
        stopping = asyncio.Event()
        work = asyncio.gather(*(_stream(client, SEED + number, stopping) for number, client in enumerate(clients)))
        for _ in range(KILLS):
            await _all_go_on(clients)
            chance.choice(lane_processes(machine)).kill()
            await _all_go_on(clients)
            await _shared_out(machine, node)
        machine.command("restart")
        await until(lambda: "service.restarted" in machine.log.read_text(), 120)
        await _all_go_on(clients)
        stopping.set()
        streams = await work
        read = [await clients[0].events(stream.session) for stream in streams]
        assert faults(read, [expected_events(stream.chunks, SED_MINI) for stream in streams]) == ZEROS
        for _ in range(16):  # Each on two new connections.
            async with Client(machine) as opening, Client(machine) as asking:
                await asking.status((await opening.open()).session)
        assert metric(machine, "earshot_connections_given_total") > 0
        for client in clients:
            await client.http.aclose()
    log = machine.log.read_text()
    assert log.count("its supervisor has seen its end") == KILLS
    assert "group.removed" not in log
    assert "node.lost" not in log, "a lane that stops has given its partitions up"
    assert "standby.behind" not in log
