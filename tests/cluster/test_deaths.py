"""Three nodes on one Kafka, and what they make of the death, the pause and the removal of one."""

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest

from infra import models
from tests.cluster.nodes import service_nodes, start_again
from tests.lengths import length
from tests.process import ServiceProcess, ask
from tests.recovery.load import Client, Stream
from tests.recovery.truth import expected_events
from tests.waiting import until, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: The broker would notice a death after this time only.
SESSION_SECONDS = 60
#: A removal takes far less, also on a busy machine.
NOTICED_SECONDS = 45.0
DEATHS = length("DEATHS", 1)
SESSIONS = 8

Nodes = list[ServiceProcess]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with service_nodes(tmp_path_factory.mktemp("deaths"), {}, {}, {}, kafka_session_seconds=SESSION_SECONDS) as nodes:
        yield nodes


@pytest.fixture
def nodes(three: Nodes) -> Nodes:
    start_again(three)
    return three


def lines(node: ServiceProcess, event: str, since: float) -> list[dict[str, Any]]:
    """Return the lines about an event that a node has logged since then, seconds since 1970."""
    said = [json.loads(line) for line in node.log.read_text().splitlines() if f'"event": "{event}"' in line]
    return [one for one in said if _at(one) >= since]


def _at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


class Load:
    """Clients that send chunks through all nodes, with the seconds until each answer."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.streams: list[Stream] = []
        self.clients: list[Client] = []
        self.seconds: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        for seed in range(SESSIONS):
            client = Client(*self.nodes)
            client.first = seed
            self.clients.append(client)
            self.streams.append(await client.open())
        self._tasks = [asyncio.create_task(self._send(seed)) for seed in range(SESSIONS)]
        return self

    async def _send(self, seed: int) -> None:
        while True:
            began = time.monotonic()
            await self.clients[seed].put(self.streams[seed], seed)
            self.seconds.append(time.monotonic() - began)
            await asyncio.sleep(0.1)

    async def goes_on(self) -> None:
        """Return once each client had two more answers."""
        before = [len(stream.chunks) for stream in self.streams]
        await until(
            lambda: all(len(stream.chunks) > past + 1 for stream, past in zip(self.streams, before, strict=True)), 120
        )

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if error[0] is None:
                for client, stream in zip(self.clients, self.streams, strict=True):
                    # The last one may have been sent, and is sent again.
                    await client.put(stream, self.clients.index(client))
                    await client.seal(stream)
                    assert await client.events(stream.session) == expected_events(
                        stream.chunks, models.directory("sed_mini")
                    )
        finally:
            for client in self.clients:
                await client.http.aclose()


async def test_killed_process_is_removed_at_once(nodes: Nodes) -> None:
    """Both others see its connections end; the broker does not wait for its session.

    `EARSHOT_TEST_DEATHS=20 pytest -s` prints what was measured.
    """
    noticed, worst = [], []
    async with Load(nodes) as load:
        for turn in range(DEATHS):
            victim = nodes[turn % len(nodes)]
            others = [node for node in nodes if node is not victim]
            await load.goes_on()
            load.seconds.clear()
            killed = time.time()
            victim.kill()

            def removals(
                victim: ServiceProcess = victim, others: Nodes = others, killed: float = killed
            ) -> list[float]:
                dead = [one for node in others for one in lines(node, "group.dead", killed)]
                assert all(one["url"] == victim.url for one in dead)
                return [_at(one) - killed for one in dead]

            await until(removals, NOTICED_SECONDS)
            await load.goes_on()
            noticed += removals()
            worst.append(max(load.seconds))
            await asyncio.to_thread(start_again, nodes)
    assert len(noticed) == DEATHS
    print(
        f"\n{DEATHS} deaths: LeaveGroup within 2 s in {sum(one < 2.0 for one in noticed)}, median "
        f"{statistics.median(noticed):.2f} s, worst {max(noticed):.2f} s; worst answer to a client: median "
        f"{statistics.median(worst):.2f} s, worst {max(worst):.2f} s"
    )
    assert max(worst) < SESSION_SECONDS
    assert not any(lines(node, "group.removed", 0.0) for node in nodes)


def test_paused_process_is_not_removed(nodes: Nodes) -> None:
    began = time.time()
    nodes[0].pause()
    try:
        time.sleep(8)
    finally:
        nodes[0].resume()
    wait_for(lambda: nodes[0].ask_ready() == '{"status":"ok"}')
    assert not any(lines(node, event, began) for node in nodes for event in ("group.dead", "group.removed"))


async def _remove(node: ServiceProcess) -> None:
    """Have the broker remove a living node, as two witnesses would that are wrong."""
    kafka = AIOKafkaClient(bootstrap_servers=node.environment["EARSHOT_BROKER"].removeprefix("kafka://"))
    group, (file,) = node.environment.get("EARSHOT_KAFKA_PREFIX", "earshot"), node.data.rglob("node-id")
    name = file.read_text().split()[0]
    await kafka.bootstrap()
    try:
        broker = await kafka.coordinator_lookup(CoordinationType.GROUP, group)
        await kafka.ready(broker)
        described = await kafka.send(broker, DescribeGroupsRequest([group]))
        (member,) = [one[0] for one in described.groups[0][5] if one[0].startswith(f"{name}-")]
        assert (await kafka.send(broker, LeaveGroupRequest(group, member))).error_code == 0
    finally:
        await kafka.close()


async def test_removal_of_living_process_loses_nothing(nodes: Nodes) -> None:
    """It joins again, and tells its operator."""
    began = time.time()
    async with Load(nodes) as load:
        await load.goes_on()
        await _remove(nodes[0])
        await until(lambda: lines(nodes[0], "group.removed", began), NOTICED_SECONDS)
        await load.goes_on()
    metrics = ask("GET", f"{nodes[0].url}/metrics").text
    assert "\nearshot_survived_removals_total 1" in metrics
