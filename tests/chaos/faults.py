"""Faults of nodes, brokers, disks, clocks and the database; some are those of `tests.fencing`."""

import asyncio
import itertools
import os
import random
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from streams.membership.neighbours import PROOF_SECONDS
from tests.chaos.firewall import DROPPED, REFUSED, blocked
from tests.chaos.scene import ChaosScene
from tests.cluster.nodes import ahead
from tests.disks import Disk
from tests.fencing import faults as fencing
from tests.fencing.load import Load
from tests.kafka import group
from tests.kafka_launcher.launcher import KafkaCluster
from tests.lengths import SESSION_SECONDS
from tests.process import ServiceProcess
from tests.waiting import wait_for

AWAY_SECONDS = 60.0
ALL_AWAY_SECONDS = 20.0
#: How long a broker is paused, others lead its partitions after 5 s; a node cut off; a disk full; the database locked.
PAUSE_SECONDS = 30.0
CUT_SECONDS = 15.0
FULL_SECONDS = 5.0
LOCKED_SECONDS = 6.0
AHEAD_SECONDS = 3600.0
STEP_SECONDS = 3.0

Fault = Callable[[ChaosScene, Load, random.Random], Awaitable[object]]


def _of_a_node(fault: fencing.Fault) -> Fault:
    def strike(scene: ChaosScene, load: Load, chance: random.Random) -> Awaitable[object]:
        return fault(chance.choice(scene.nodes), load, chance)

    return strike


async def _start(*processes: ServiceProcess) -> None:
    for process in processes:
        await asyncio.to_thread(process.start)


async def _stop(*processes: ServiceProcess) -> None:
    for process in processes:
        status = await asyncio.to_thread(process.stop)
        assert status == 0, f"a node ended with {status}:\n{process.tail()}"


# --- nodes --------------------------------------------------------------------------------------------------------


async def _killed(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Kill a node; it stays away for less or for more than the session timeout."""
    chance.choice(scene.processes).kill()
    await asyncio.sleep(chance.uniform(0.0, 2 * SESSION_SECONDS))


async def _without_tables(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    victim = chance.choice(scene.processes)
    victim.kill()
    victim.drop_tables()


async def _drained(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Drain a node by the operator's command at another one."""
    node, other = chance.sample(scene.processes, 2)
    await asyncio.to_thread(other.command, "drain", node.url, "--url", other.url)
    await asyncio.to_thread(wait_for, lambda: not node.running)
    await _stop(node)
    await load.turn()


async def _rolling_restart(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    for process in scene.processes:
        await _stop(process)
        await _start(process)


async def _rescaled(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """One node, all with a spare one, two: each until every client has ended a session."""
    _, second, *others = scene.processes
    try:
        await _stop(second, *others)
        await load.turn()
        await _start(second, *others, scene.spare)
        await load.turn()
        await _stop(*others, scene.spare)
        await load.turn()
    finally:
        await asyncio.to_thread(scene.spare.stop)


async def _removed(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Remove a living node from the group, as another one does that takes it for dead."""
    name, there = await asyncio.to_thread(group.members, scene.cluster.bootstrap)
    error = await group.remove(scene.cluster.bootstrap, name, chance.choice(there))
    assert error == 0, f"the broker answers {error}"
    await load.turn()


async def _refused_to_one(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """One node sees another one end its connection and refuse others; the third does not, so nobody is removed."""
    witness, victim = chance.sample(scene.processes, 2)
    before = {node: len(node.log.read_text()) for node in scene.processes}
    with blocked([_process(witness)], [victim.port], REFUSED):
        await asyncio.sleep(2 * PROOF_SECONDS)
    for node, length in before.items():
        assert "group.dead" not in node.log.read_text()[length:], (
            f"{victim.url} was removed because one refusal was seen"
        )


async def _nodes_cut_off(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Cut a node off from the other nodes; the brokers and clients reach all."""
    victim = chance.choice(scene.processes)
    others = [node for node in scene.processes if node is not victim]
    with (
        blocked(map(_process, others), [victim.port], DROPPED),
        blocked([_process(victim)], [node.port for node in others], DROPPED),
    ):
        await asyncio.sleep(CUT_SECONDS)


def _process(node: ServiceProcess) -> int:
    assert node.process is not None
    return node.process.pid


async def _upgraded_and_back(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Restart one node after the other with the version before, and then with this one."""
    try:
        for tree in (scene.earlier, None):
            for process in scene.processes:
                await _stop(process)
                process.tree = tree
                await _start(process)
                await load.turn()
    finally:
        for process in scene.processes:
            process.tree = None


def _with_clock(step: float) -> Fault:
    async def strike(scene: ChaosScene, load: Load, chance: random.Random) -> None:
        """Run a node with a wrong clock until every client has ended a session."""
        victim = chance.choice(scene.processes)
        right = dict(victim.environment)
        victim.kill()
        victim.environment |= ahead(AHEAD_SECONDS, step)
        try:
            await _start(victim)
            await asyncio.gather(load.turn(), asyncio.sleep(2 * step))
        finally:
            victim.environment = right
            victim.kill()

    return strike


# --- brokers ------------------------------------------------------------------------------------------------------


def _broker(scene: ChaosScene, chance: random.Random) -> int:
    return chance.choice(list(scene.cluster.processes))


def _broker_away(seconds: float) -> Fault:
    async def strike(scene: ChaosScene, load: Load, chance: random.Random) -> None:
        number = _broker(scene, chance)
        scene.cluster.kill(number)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(scene.cluster.restart, number)

    return strike


async def _all_brokers_away(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    for number in scene.cluster.processes:
        scene.cluster.kill(number)
    await asyncio.sleep(ALL_AWAY_SECONDS)
    await asyncio.to_thread(scene.cluster.start)


def _broker_paused(coordinates: bool) -> Fault:
    async def strike(scene: ChaosScene, load: Load, chance: random.Random) -> None:
        """Pause the broker that coordinates the group, or another one."""
        coordinator = await asyncio.to_thread(_coordinator, scene)
        others = [number for number in scene.cluster.processes if number != coordinator]
        process = scene.cluster.processes[coordinator if coordinates else chance.choice(others)]
        assert process is not None
        os.kill(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            os.kill(process, signal.SIGCONT)

    return strike


async def _leaders_moved(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Restart a broker, whose partitions others lead meanwhile; give them back to it."""
    await asyncio.to_thread(scene.cluster.restart, _broker(scene, chance))
    await load.turn()
    await asyncio.to_thread(_elect, scene.cluster)


def _admin(cluster: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def _elect(cluster: KafkaCluster) -> None:
    admin = _admin(cluster)  # It ends what it does when nobody has it any more.
    admin.elect_leaders(ElectionType.PREFERRED, None).result()


async def _coordinator_moved(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    await asyncio.to_thread(scene.cluster.restart, await asyncio.to_thread(_coordinator, scene))


def _coordinator(scene: ChaosScene) -> int:
    return int(_group(scene).coordinator.id)


def _group(scene: ChaosScene) -> Any:
    admin = _admin(scene.cluster)
    (name,) = [one.group_id for one in admin.list_consumer_groups().result().valid]
    return admin.describe_consumer_groups([name])[name].result()


# --- disks and the database ---------------------------------------------------------------------------------------


@contextmanager
def _full(disk: Disk | None) -> Iterator[Disk]:
    assert disk is not None
    try:
        yield disk
    finally:
        disk.free()


async def _stays_full(disk: Disk) -> None:
    until = time.monotonic() + FULL_SECONDS
    while time.monotonic() < until:
        await asyncio.to_thread(disk.fill)
        await asyncio.sleep(0.05)


async def _broker_disk_full(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    """Fill a broker's disk, whereupon it ends; the others go on."""
    with _full(scene.broker_disk) as disk:
        await _stays_full(disk)
        await load.turn()
    await asyncio.to_thread(scene.cluster.restart, max(scene.cluster.processes))


async def _node_disk_full(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    with _full(scene.node_disk) as disk:
        await _stays_full(disk)


async def _database_locked(scene: ChaosScene, load: Load, chance: random.Random) -> None:
    def lock() -> None:
        with closing(sqlite3.connect(scene.database, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(LOCKED_SECONDS)
            connection.execute("ROLLBACK")

    await asyncio.to_thread(lock)


#: Those that need what a machine may not have.
UPGRADED = "upgraded and back"
NODE_FULL = "node's disk full"
BROKER_FULL = "broker's disk full"
REFUSED_TO_ONE = "node refuses one other"
NODES_CUT_OFF = "node cut off from nodes"

FAULTS: dict[str, Fault] = {
    "node killed": _killed,
    "node killed, its tables lost": _without_tables,
    "node killed, its rows arrive later": _of_a_node(fencing.killed),
    "node paused": _of_a_node(fencing.paused),
    "node paused, its rows arrive later": _of_a_node(fencing.paused_and_held),
    "node cut off": _of_a_node(fencing.cut_off),
    "node disconnected": _of_a_node(fencing.disconnected),
    "node drained": _drained,
    "node removed though it lives": _removed,
    REFUSED_TO_ONE: _refused_to_one,
    NODES_CUT_OFF: _nodes_cut_off,
    "rolling restart": _rolling_restart,
    "1, 4, 2 nodes": _rescaled,
    UPGRADED: _upgraded_and_back,
    "clock an hour ahead": _with_clock(0),
    "clock that steps": _with_clock(STEP_SECONDS),
    NODE_FULL: _node_disk_full,
    "database locked": _database_locked,
    "broker killed": _broker_away(0.0),
    "broker away for a minute": _broker_away(AWAY_SECONDS),
    "broker paused": _broker_paused(coordinates=False),
    "coordinator paused": _broker_paused(coordinates=True),
    BROKER_FULL: _broker_disk_full,
    "leaders moved": _leaders_moved,
    "coordinator moved": _coordinator_moved,
    "all brokers away": _all_brokers_away,
}


def plan(seed: int) -> Iterator[tuple[int, str, random.Random]]:
    """Yield faults without end, each with its number and its own chance.

    Every kind comes once in random order, then again in another. Whoever leaves some out changes none of the others.
    """
    chance = random.Random(seed)
    kinds = (kind for _ in itertools.repeat(None) for kind in chance.sample(list(FAULTS), len(FAULTS)))
    for number, kind in enumerate(kinds):
        yield number, kind, random.Random(f"{seed}-{number}")
