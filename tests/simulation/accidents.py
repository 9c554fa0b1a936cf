"""Faults of nodes, brokers and disks in a history."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tests.simulation.clients import PATIENCE_SECONDS, PROJECTS, Client, Pace, shows
from tests.simulation.node import READ_SECONDS, SESSION_SECONDS, Node
from tests.simulation.store import CORRUPTION, EIO, EMFILE
from tests.simulation.threads import SLOW_SHARE, SLOW_STEP_SECONDS
from tests.simulation.world import World
from topics.catalog import COMPACTION_LAG_MS, KEEP_TOMBSTONES_MS

DAY_SECONDS: Final = 26 * 3600.0
#: Lets clients send this many commands.
Grant = Callable[[int], None]
Fault = Callable[[World, Node, list[Node], Grant], Awaitable[None]]


async def _past_the_session(world: World, grant: Grant) -> None:
    """Advance until others own the node's partitions, and slightly longer, while commands arrive."""
    seconds = SESSION_SECONDS + world.chance.uniform(0.3, 3.0)
    share = world.chance.random()
    await asyncio.sleep(seconds * share)
    grant(4)
    await asyncio.sleep(seconds * (1 - share))
    grant(4)


def _lose_tables(world: World, node: Node) -> None:
    """Revert tables to their last write or an older one, or delete them, as a crash may."""
    left = world.chance.random()
    if left < 0.4:
        return
    if left < 0.7:
        node.disk.crash(lambda count: world.chance.randint(0, min(count, 40)))
    elif left < 0.85:
        node.disk.crash(lambda count: world.chance.randint(0, count))
    else:
        node.disk.tables.clear()


async def killed(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Kill it with rows in flight, and start it before or after a takeover."""
    node.kill()
    _lose_tables(world, node)
    await asyncio.sleep(world.chance.choice((0.1, SESSION_SECONDS, 2 * SESSION_SECONDS)) * world.chance.random())
    grant(4)
    node.start()


async def machine_killed(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Kill all lanes of its machine at once, and start them in any order."""
    lanes = [one for one in nodes if one.machine == node.machine]
    for lane in lanes:
        lane.kill()
        _lose_tables(world, lane)
    await asyncio.sleep(world.chance.choice((0.1, SESSION_SECONDS, 2 * SESSION_SECONDS)) * world.chance.random())
    grant(4)
    for lane in world.chance.sample(lanes, len(lanes)):
        lane.refuse()
        lane.start()
        await asyncio.sleep(world.chance.random() * 0.5)


async def restarted(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Stop it cleanly, and start it."""
    await node.stop()
    await asyncio.sleep(world.chance.random())
    node.start()


async def paused(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Pause it with rows in flight until others have taken over."""
    node.link.slow = world.chance.choice((0.0, 0.5, 3.0))
    await asyncio.sleep(world.chance.random() * 0.3)
    process = node.process
    process.pause()
    await _past_the_session(world, grant)
    node.link.slow = 0.0
    if not process.dead:
        process.resume(world.loop)


async def cut_off(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Hold its traffic, and deliver all of it later."""
    node.link.cut = True
    await _past_the_session(world, grant)
    node.link.restore()


async def removed(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Remove it from the group while it lives, and delete one of its sessions at the next owner.

    It learns of that at its next heartbeat, or not while it is cut off.
    """
    chance = world.chance

    def client(*reached: Node) -> Client:
        return Client(chance.randrange(1000, 2**32), reached, chance, Pace(), world.wrong)

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            session = await client(node).open("stream", PROJECTS[0])
    except TimeoutError:
        return  # It has no partition.
    node.link.cut = chance.random() < 0.8
    world.group.remove(node.name)
    lease_ends, ends = world.loop.now + READ_SECONDS, world.loop.now + SESSION_SECONDS + chance.uniform(0.3, 3.0)
    grant(4)
    deleting = asyncio.create_task(client(*(one for one in nodes if one is not node)).delete(session))
    while world.loop.now < ends:
        await asyncio.sleep(0.05)
        if world.loop.now > lease_ends and session.deleted and shows(node, session):
            world.wrong(f"{session.id}: {node.name} shows it, though it was deleted")
    deleting.cancel()
    node.link.restore()


async def taken_for_dead(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Have another node remove it by its last plan: while it lives, dead, or after it has started again."""
    chance = world.chance
    other = chance.choice([one for one in nodes if one is not node])
    dies, starts_first = chance.random() < 0.7, chance.random() < 0.5
    if dies:
        node.kill()
        _lose_tables(world, node)
    grant(4)
    for starts in (starts_first, not starts_first):
        await asyncio.sleep(chance.random())
        if not starts:
            other.remove(node)
        elif dies:
            node.start()
    grant(4)


async def late_heartbeat(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Answer a heartbeat at about the end of the node's session, while its records are slow."""
    if node.process.dead or node.client is None:
        return
    node.link.slow = world.chance.choice((0.1, 0.4))
    node.client.late = [SESSION_SECONDS - 1 + world.chance.uniform(-0.3, 0.7)]
    await asyncio.sleep(SESSION_SECONDS - 1)
    for _ in range(6):
        await asyncio.sleep(0.25)
        grant(3)
    node.link.slow = 0.0


async def slow_takeover(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Cause a takeover while the log is slow and heartbeats are late, or the node is paused."""
    chance = world.chance
    other = chance.choice([one for one in nodes if one is not node])
    other.kill()
    for one in nodes:
        one.link.slow = chance.choice((0.2, 0.5, 1.0))
        if one.client is not None:
            one.client.late = [SESSION_SECONDS - 1 + chance.uniform(-0.2, 0.7) for _ in range(chance.choice((0, 4)))]
    grant(4)
    await _taking_over(node)
    await asyncio.sleep(chance.random() * 3.0)
    process = node.process
    process.pause()
    await asyncio.sleep(SESSION_SECONDS + chance.uniform(-0.3, 0.7))
    if not process.dead:
        process.resume(world.loop)
    grant(4)
    for one in nodes:
        one.link.slow = 0.0
    other.start()


async def stalled_takeover(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Cause a takeover by a node that stalls past its session in the takeover's last step."""
    other = world.chance.choice([one for one in nodes if one is not node])
    grant(4)
    other.kill()
    node.stalls = world.chance.choice((1, 2))
    grant(4)
    await asyncio.sleep(SESSION_SECONDS + world.chance.uniform(1.0, 4.0))
    node.stalls = 0
    other.start()


async def _taking_over(node: Node) -> None:
    """Wait a short time for it to take something over."""
    for _ in range(60):
        await asyncio.sleep(0.1)
        if any(owner.is_coming for owner in node.owners):
            return


async def slow(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Slow down everything it does."""
    node.link.slow = world.chance.choice((0.5, 2.0))
    await asyncio.sleep(world.chance.uniform(1.0, 4.0))
    grant(4)
    node.link.slow = 0.0


async def brokers_away(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Make all brokers unavailable."""
    world.cluster.go_away()
    await asyncio.sleep(world.chance.uniform(0.3, 2 * SESSION_SECONDS))
    grant(4)
    world.cluster.come_back()


async def disk_fails(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Make some reads and writes of its tables fail for a while."""
    node.disk.break_down(
        world.chance.choice((EIO, EIO, EMFILE, EMFILE, CORRUPTION)), world.chance.choice((0.05, 0.5, 1.0))
    )
    grant(4)
    await asyncio.sleep(world.chance.uniform(0.1, 2.0))
    node.disk.break_down(None)


async def changelog_unread(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Make its reads of the log fail while partitions are reassigned."""
    node.reading.faulty = world.chance.choice((0.2, 0.6, 1.0))
    other = world.chance.choice([one for one in nodes if one is not node])
    other.kill()
    await asyncio.sleep(world.chance.uniform(0.5, SESSION_SECONDS + 2))
    grant(4)
    other.start()
    await asyncio.sleep(world.chance.random())
    node.reading.faulty = 0.0


async def gaps_unread(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Deliver rows late that later owners cannot read, while these owners lose and regain their partitions."""
    chance = world.chance
    later = [one for one in nodes if one is not node]
    node.link.cut = True
    await _past_the_session(world, grant)
    for one in later:
        one.reading.faulty = 1.0
    node.link.restore()
    grant(4)
    await asyncio.sleep(chance.uniform(0.2, 3.0))
    for one in later:
        one.lose_group()
    await asyncio.sleep(chance.random() * 0.5)
    for one in later:
        one.reading.faulty = 0.0
    grant(4)


async def restores_interrupted(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Delete its tables, and reassign its partitions during the restore, while its threads go on."""
    chance, threads = world.chance, world.threads
    node.kill()
    node.disk.tables.clear()
    threads.slow_share, threads.slow_seconds = 0.3, chance.choice((0.15, 2.0))
    node.start()
    for _ in range(chance.randint(1, 3)):
        await _restoring(node)
        await asyncio.sleep(chance.random() * 0.1)
        if chance.random() < 0.7:
            node.lose_group()
        else:
            other = chance.choice([one for one in nodes if one is not node])
            other.kill()
            other.start()
        grant(2)
    await asyncio.sleep(chance.random() * 3.0)
    threads.slow_share, threads.slow_seconds = SLOW_SHARE, SLOW_STEP_SECONDS


async def _restoring(node: Node) -> None:
    """Wait a short time for it to read a changelog."""
    for _ in range(200):
        await asyncio.sleep(0.01)
        if any((owner.waiting or "").startswith("its changelog") for owner in node.owners):
            return


async def back_after_a_day(world: World, node: Node, nodes: list[Node], grant: Grant) -> None:
    """Pause it for a day, in which deleted rows and their tombstones leave the changelog."""
    process = node.process
    process.pause()
    await _past_the_session(world, grant)
    await asyncio.sleep(2.0)
    world.jump(DAY_SECONDS)
    world.cluster.compact(COMPACTION_LAG_MS, KEEP_TOMBSTONES_MS)
    if not process.dead:
        process.resume(world.loop)
    await asyncio.sleep(2.0)
    grant(4)
    other = world.chance.choice([one for one in nodes if one is not node])
    other.kill()
    await asyncio.sleep(SESSION_SECONDS + 1.0)
    other.start()


ACCIDENTS: Final[dict[str, Fault]] = {
    fault.__name__.replace("_", " "): fault
    for fault in (
        *(killed, machine_killed, restarted, paused, cut_off, removed, taken_for_dead, late_heartbeat, slow_takeover),
        *(
            stalled_takeover,
            slow,
            brokers_away,
            disk_fails,
            changelog_unread,
            gaps_unread,
            restores_interrupted,
            back_after_a_day,
        ),
    )
}
