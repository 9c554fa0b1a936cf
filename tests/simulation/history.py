"""One history: nodes, clients, faults; then repair, and comparison with the model."""

import asyncio
import gc
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streams.sessions.store import SessionStore
from streams.tables.partition_rows import PREFIX
from tests.simulation import accidents, alarms
from tests.simulation.clients import Client, Pace
from tests.simulation.loop import Stuck
from tests.simulation.model import changelog, compare, compare_standby, rebuilt, settled
from tests.simulation.node import Node
from tests.simulation.store import Disk
from tests.simulation.world import World, enter, leave
from topics.catalog import COMMANDS
from topics.keys import ALARM, AUDIO, EPOCH, SESSION

#: The machine of each node: the first two are lanes of one.
MACHINES: Final = ("left", "left", "right")
PARTITIONS: Final = 3
CLIENTS: Final = 4
LEAST_COMMANDS: Final = 50
LEAST_TAKEOVERS: Final = 2
LEAST_FAULTS: Final = 3
MOST_FAULTS: Final = 20
#: Virtual seconds until all nodes must serve and be settled.
SETTLE_SECONDS: Final = 60.0
#: How long owners look for late writes of others.
LOOKED_SECONDS: Final = 5.0


@dataclass
class Outcome:
    """A history's statistics, and its errors."""

    seed: int
    commands: int = 0
    takeovers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


class History:
    """A history, derived from its seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.outcome = Outcome(seed, wrong=self.world.wrongs)
        enter(self.world)
        self.nodes = [
            Node(self.world, f"node-{number}", machine, PARTITIONS) for number, machine in enumerate(MACHINES)
        ]

    def run(self) -> Outcome:
        world, outcome = self.world, self.outcome
        asyncio.events.set_event_loop(None)
        try:
            world.loop.run_until_complete(self._run())
        except (Stuck, AssertionError) as error:
            outcome.wrong.append(f"{type(error).__name__}: {error}")
        # The loop survives a callback that raises, and the history may come right by chance.
        outcome.wrong += [f"a callback raised {error!r}" for error in world.loop.failures]
        outcome.seconds = world.loop.now
        return outcome

    async def _run(self) -> None:
        world, outcome, chance = self.world, self.outcome, self.world.chance
        for node in self.nodes:
            node.start()
        pace = Pace()
        clients = [
            Client(number, self.nodes, random.Random(chance.random()), pace, self.world.wrong)
            for number in range(CLIENTS)
        ]
        running = [asyncio.create_task(client.run()) for client in clients]
        await self._until(self._all_serve, "the first assignment")
        epochs = self._epochs()
        pace.grant(14)
        while self._unfinished() or outcome.takeovers < LEAST_TAKEOVERS:
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            kind = chance.choice(tuple(accidents.ACCIDENTS))
            pace.grant(8)
            await asyncio.sleep(chance.random() * 0.1)
            outcome.faults[kind] += 1
            await accidents.ACCIDENTS[kind](world, chance.choice(self.nodes), self.nodes, pace.grant)
            self._start_who_ended()
            outcome.takeovers = self._epochs() - epochs
            if outcome.faults.total() >= MOST_FAULTS:
                break
        pace.finish()
        await self._until(lambda: all(task.done() for task in running), "clients")
        for task in running:
            task.result()
        self.sessions = [session for client in clients for session in client.sessions]
        await self._until(self._settled, "the analysis")
        await asyncio.sleep(LOOKED_SECONDS)
        await self._until(self._settled, "the end")
        await self._until(self._noted, "a note of how far each partition is folded")
        await self._until(self._kept_up, "stand-bys")
        outcome.commands = self._count(COMMANDS)
        outcome.takeovers = self._epochs() - epochs
        await self._look_at_the_end()

    def _unfinished(self) -> bool:
        outcome = self.outcome
        return outcome.faults.total() < LEAST_FAULTS or self._count(COMMANDS) < LEAST_COMMANDS

    def _start_who_ended(self) -> None:
        for node in self.nodes:
            if node.process.dead:
                node.start()

    async def _until(self, condition: Any, what: str) -> None:
        deadline = self.world.loop.now + SETTLE_SECONDS
        while not condition():
            if self.world.loop.now > deadline:
                raise Stuck(f"{what} took more than {SETTLE_SECONDS:g} s: {self._state()}")
            await asyncio.sleep(0.25)

    def _state(self) -> str:
        said = []
        for node in self.nodes:
            waits = "dead" if node.process.dead else node.partitions.waits()
            said.append(f"{node.name}: {waits or 'serves'} {sorted(node.owners.here)} {node.failure}")
        if hasattr(self, "sessions"):
            stores = self._stores()
            for session in self.sessions:
                store = stores.get(self.nodes[0].owners.number(session.id))
                if store is not None and not settled(session, store):
                    said.append(f"{session.id}: {store.head(session.id)}")
        return "; ".join(said)

    def _stores(self) -> Mapping[int, SessionStore]:
        stores: dict[int, SessionStore] = {}
        twice: set[int] = set()
        for node in self.nodes:
            for number, store in node.serving().items():
                # One node learned of a new assignment before another; until then two serve.
                twice.update({number} & stores.keys())
                stores[number] = store
        return {number: stores[number] for number in sorted(stores.keys() - twice)}

    def _all_serve(self) -> bool:
        return len(self._stores()) == PARTITIONS

    def _settled(self) -> bool:
        stores = self._stores()
        if len(stores) < PARTITIONS:
            return False
        number_of = self.nodes[0].owners.number
        return all(settled(session, stores[number_of(session.id)]) for session in self.sessions) and not any(
            map(alarms.pending, stores.values())
        )

    def _noted(self) -> bool:
        """Return whether everything folded is on the changelog; late writes follow slightly later."""
        return all(owner.durable == owner.positions() for node in self.nodes for owner in node.owners.all_serving())

    def _kept_up(self) -> bool:
        ends = {number: self.world.cluster.topics[changelog(number)].end for number in range(PARTITIONS)}
        return all(
            number in tables and tables[number].applied.offset >= ends[number]
            for node in self.nodes
            for tables in [node.standbys()]
            for number in node.membership._assignor.assignment.standbys
        )

    async def _look_at_the_end(self) -> None:
        stores = self._stores()
        cluster = self.world.cluster
        cluster.compact(0, 0)
        compare(self.sessions, stores, "read through the owners", self.world.wrong)
        for fault in alarms.lost(self.sessions, stores, self.world.received):
            self.world.wrong(fault)
        deleted = {session.id.encode() for session in self.sessions if session.deleted}
        for number in range(PARTITIONS):
            for record in cluster.topics[changelog(number)].records:
                key = record.key or b""
                # A reference to audio tells nothing of it.
                content = key[:1] == ALARM or (key[:1] == SESSION and key[PREFIX : PREFIX + 1] != AUDIO)
                if content and record.value is not None and key[1:PREFIX] in deleted:
                    self.world.wrong(f"the changelog of partition {number} keeps {key!r}, which was deleted")
        disk = Disk(self.world.threads, self.world.chance)
        fresh = {
            number: await rebuilt(number, cluster.topics[changelog(number)], disk, self.nodes[0].sessions)
            for number in range(PARTITIONS)
        }
        compare(self.sessions, fresh, "rebuilt from the changelog", self.world.wrong)
        machine_of = {number: node.machine for node in self.nodes for number in node.owners.here}
        for node in self.nodes:
            coming = node.membership._assignor.assignment.coming
            for rows in node.standbys().values():
                # One that is about to own the partition is no safeguard; another one is.
                if machine_of[rows.number] == node.machine and rows.number not in coming:
                    self.world.wrong(f"the stand-by of partition {rows.number} is on its owner's machine, {node.name}")
                compare_standby(self.sessions, rows.number, PARTITIONS, rows, self.world.wrong)
            if node.ended and not node.disk.errors:
                self.world.wrong(f"{node.name} ended by itself: {node.failure}")
            if parked := sum(node.partitions.takeover.parked.values()):
                self.world.wrong(f"{node.name} parked {parked} good records")

    # --- counts -----------------------------------------------------------------------------------------------------

    def _count(self, topic: str) -> int:
        return sum(one.end for tp, one in self.world.cluster.topics.items() if tp.topic == topic)

    def _epochs(self) -> int:
        topics = (self.world.cluster.topics[changelog(number)] for number in range(PARTITIONS))
        return sum(record.key == EPOCH for topic in topics for record in topic.records)


def run(seed: int) -> Outcome:
    # Remains of killed processes must not be collected, and so run on, in the middle of a history.
    gc.disable()
    try:
        return _outcome(seed)
    finally:
        leave()
        _forget_remains()
        gc.enable()


def _outcome(seed: int) -> Outcome:
    history = History(seed)
    outcome = history.run()
    history.world.close()
    return outcome


def _forget_remains() -> None:
    """Collect what killed processes left. Without a loop, their last steps fail, which Python would report."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda failed: None
    try:
        # What was made since `gc.disable`, and then what its last steps held once more.
        gc.collect(0)
        gc.collect(1)
    finally:
        sys.unraisablehook = hook
