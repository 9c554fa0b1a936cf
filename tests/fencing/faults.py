"""Faults of a node while its rows are in flight: paused, held back, cut off, killed, or answered late."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from streams.membership.membership import HEARTBEAT_SECONDS
from tests.fencing.load import Load
from tests.fencing.scene import SETTLE_SECONDS, ProxiedNode
from tests.kafka.proxy import Hold
from tests.lengths import SESSION_SECONDS
from topics.catalog import CHANGELOG

#: How long a node under load may have no row in flight.
ROWS_SECONDS = 60.0
HOLD_SECONDS = 30.0
#: Requests delayed this long carry more rows.
SLOW_SECONDS = 0.3

#: Consecutive heartbeats that are answered late.
LATE_HEARTBEATS = 4

#: Returns the maximum number of the node's requests held back.
Fault = Callable[[ProxiedNode, Load, random.Random], Awaitable[int]]


async def _next_rows(node: ProxiedNode) -> bool:
    """Wait until the node sends rows; return False if it sends none, as it has no partition or too many in flight."""
    return await asyncio.to_thread(node.proxy.wait_for_rows, CHANGELOG, ROWS_SECONDS)


async def _many_rows_in_flight(node: ProxiedNode, newer: bool = True) -> int:
    """Hold produce requests until they carry many rows; return the number held."""
    node.proxy.delay = SLOW_SECONDS
    await asyncio.sleep(2 * SLOW_SECONDS)
    node.proxy.hold(Hold.PRODUCE, newer)
    node.proxy.delay = 0.0
    await _next_rows(node)
    await asyncio.sleep(SLOW_SECONDS)
    assert node.proxy.waiting, "no row is in flight"
    return node.proxy.waiting


async def _taken_over(load: Load) -> None:
    """Wait until other nodes have the node's partitions, and every session live at the time has ended there."""
    await asyncio.gather(asyncio.sleep(SESSION_SECONDS + 1.0), load.turn())


async def paused(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Pause it with rows in flight until others have its partitions."""
    assert await _next_rows(node), "no row is in flight"
    node.process.pause()
    await _taken_over(load)
    node.process.resume()
    return 0


async def paused_and_held(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Pause it with rows held in the network, which arrive after the takeover, before or after it resumes."""
    held = await _many_rows_in_flight(node)
    node.process.pause()
    await _taken_over(load)
    if chance.random() < 0.5:
        node.process.resume()
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        node.proxy.hold(Hold.NOTHING)
    else:
        node.proxy.hold(Hold.NOTHING)
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        node.process.resume()
    return held


async def held(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Hold its produce requests while its heartbeats pass."""
    node.proxy.hold(Hold.PRODUCE)
    await asyncio.sleep(HOLD_SECONDS * chance.uniform(0.5, 1.0))
    waiting = node.proxy.waiting
    node.proxy.hold(Hold.NOTHING)
    return waiting


async def cut_off(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Hold all its traffic until others have its partitions; then deliver everything."""
    assert await _next_rows(node), "no row is in flight"
    node.proxy.hold(Hold.EVERYTHING)
    await _taken_over(load)
    waiting = node.proxy.waiting
    node.proxy.hold(Hold.NOTHING)
    return waiting


async def late_heartbeats(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Delay heartbeat answers to about the end of the node's session, while its rows are slow."""
    node.proxy.delay = SLOW_SECONDS
    for _ in range(LATE_HEARTBEATS):
        await _next_rows(node)
        # A heartbeat is sent a second after the previous one, from which the session counts.
        node.proxy.late_heartbeats = SESSION_SECONDS - HEARTBEAT_SECONDS + chance.uniform(-0.3, 0.7)
        await asyncio.sleep(SESSION_SECONDS)
        node.proxy.late_heartbeats = 0.0
        await asyncio.sleep(chance.uniform(0.0, SESSION_SECONDS))
    node.proxy.delay = 0.0
    return 0


async def disconnected(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Cut connections with produce requests in flight, which then arrive after those of later connections."""
    waiting = await _many_rows_in_flight(node, newer=False)
    node.proxy.cut()
    await asyncio.sleep(chance.uniform(1.0, SESSION_SECONDS))
    node.proxy.hold(Hold.NOTHING)
    return waiting


async def killed(node: ProxiedNode, load: Load, chance: random.Random) -> int:
    """Kill it with rows held in the network, which arrive long after its restart on another port."""
    waiting = await _many_rows_in_flight(node, newer=False)
    node.process.kill()
    node.process.move()
    await asyncio.to_thread(node.process.start, SETTLE_SECONDS)
    await load.turn()
    node.proxy.hold(Hold.NOTHING)
    return waiting


#: Each with its weight: owner epochs exist mainly for pauses.
FAULTS: dict[str, tuple[Fault, int]] = {
    "paused": (paused, 3),
    "paused, held": (paused_and_held, 4),
    "held": (held, 1),
    "cut off": (cut_off, 2),
    "late heartbeats": (late_heartbeats, 2),
    "disconnected": (disconnected, 1),
    "killed, held": (killed, 2),
}


def plan(seed: int, pauses: int) -> list[str]:
    """Return a sequence of faults, each kind once before any random repeats; repeatable by seed."""
    chance = random.Random(seed)
    first = chance.sample(list(FAULTS), min(pauses, len(FAULTS)))
    return first + chance.choices(list(FAULTS), [weight for _, weight in FAULTS.values()], k=pauses - len(first))
