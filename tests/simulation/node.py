"""A simulated node: the real streams of sessions, without audio, models and HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from streams.agents import NodeApp
from streams.alarms.outbox import AlarmOutbox
from streams.alarms.watcher import Watcher
from streams.folding.fold import Fold
from streams.folding.followers import Followers
from streams.jobs.job_intake import JobIntake
from streams.jobs.job_results import JobResults
from streams.kafka.connection import KafkaConnection
from streams.kafka.kafka_backend import KafkaBackend
from streams.membership.membership import GroupMembership
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.partitions import Partitions
from streams.node.sender import RecordSender
from streams.node.sessions import SessionWorkload
from streams.node.standby_reads import StandbyReads
from streams.node.tasks import Tasks
from streams.node.workload import Workload
from streams.sessions.audio import AudioCache
from streams.sessions.biller import SessionBiller
from streams.sessions.intake import SessionIntake
from streams.sessions.source_watch import SourceWatch
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from streams.tables.partition_rows import PartitionRows
from tests.simulation.alarms import Deliveries, Rules
from tests.simulation.librdkafka import ReadingLink
from tests.simulation.log import Link
from tests.simulation.loop import Process
from tests.simulation.scorer import Scorer
from tests.simulation.store import Disk
from tests.simulation.world import World
from topics.catalog import COMMANDS, JOB_COMMANDS, JOB_RESULTS
from topics.errors import Unavailable
from topics.folding import Verdict
from topics.sessions import commands
from topics.sessions.records import SessionCommand

SESSION_SECONDS: Final = 4.0
READ_SECONDS: Final = 2.0
#: Seconds between two looks at the sources.
WATCH_SECONDS: Final = 0.3
LIFETIME_MS: Final = 1000 * 3600 * 1000
Request = Callable[[], Coroutine[Any, Any, None]]
#: Never started: tasks take the work.
APP: Final = NodeApp()
CONNECTION: Final = KafkaConnection(("simulated:9092",))


class Sessions(SessionWorkload):
    """A node's sessions with real folds, and a scorer in place of the analyser."""

    def __init__(self, node: Node, owners: Owners, sender: RecordSender, backend: KafkaBackend) -> None:
        Workload.__init__(self, owners, sender, Followers(), LIFETIME_MS, LIFETIME_MS)
        self._node = node
        chance = node.world.chance
        # Some nodes read all audio back from the log.
        limit = 1 if chance.random() < 0.2 else 2**20
        self.audio = AudioCache(limit, backend, self._needed, clock=node.world.loop.time)
        self.intake = SessionIntake(sender.verdicts, LIFETIME_MS, self.announce, self.audio)
        self.outbox = AlarmOutbox(self.serving, self.all_serving, self.for_reading, self.all_for_reading)
        rules = Rules()
        watcher = Watcher(rules, rules, self.outbox.announce)
        self.writer = WindowWriter(self.serving, self.intake, self._may_show, watcher=watcher)
        self.folds: dict[str, Fold[Any]] = {
            COMMANDS: self.intake,
            # No client sends jobs.
            JOB_COMMANDS: JobIntake(sender.verdicts, LIFETIME_MS, lambda changes: None),
            JOB_RESULTS: JobResults(lambda changes: None),
        }
        self.analyser: Any = Scorer(self.serving, self.audio, self.writer, self._fail, chance, node.tasks)
        self.listeners: Any = SimpleNamespace(note=lambda changed: None)
        self.sources = SourceWatch(self.all_serving, partial(sender.append, COMMANDS))
        self.biller = SessionBiller(APP, self.serving, None, self._metered)
        self.deliveries = Deliveries(self.outbox, node.world.received, node.world.loop.now)

    async def bill(self) -> None:
        async for ids in self.biller.ready:
            await self.biller.bill(ids)

    async def watch(self) -> None:
        """Notice which sources are lost, in the time in which partitions are served."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for owner in self.owners.all_serving():
                with suppress(Unavailable):
                    owner.presence.beat(self._node.world.wall_ms(), often=False)
            self.sources.look()

    async def begin(self, owner: PartitionOwner) -> int:
        """Begin as a real node does; it may have been paused since it last checked its clock."""
        self._node.stand_still()
        return await super().begin(owner)

    def suspect(self, id: str) -> None:
        self.serving(id).head(id)


class Node:
    """A node, alone on its machine or as a lane, that is restarted repeatedly on one disk."""

    def __init__(self, world: World, name: str, machine: str, partitions: int) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.url = f"http://{name}"
        world.nodes[self.url] = self
        self.partitions_count = partitions
        self.disk = Disk(world.threads, world.chance)
        self.link = Link(world.cluster)
        self.reading = ReadingLink(self.link, world.threads)
        self.process: Process = Process(name)
        self.process.dead = True
        self.client: Any = None
        #: Number of processes that ended by themselves, and the last reason.
        self.ended = 0
        self.failure = ""
        #: Remaining stalls past its session at the start of a partition.
        self.stalls = 0
        #: Objects of all processes, kept so that none is collected during a history.
        self._remains: list[Any] = []
        #: Requests at its private port, which its machine keeps for its next process.
        self._waiting: list[Request] = []

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.process = Process(self.name)
        self.process.node = self  # type: ignore[attr-defined]
        self.process.context.run(self._build)
        waiting, self._waiting = self._waiting, []
        for handle in waiting:
            self._take(handle)

    def _build(self) -> None:
        world = self.world
        backend = KafkaBackend(CONNECTION, (), self.partitions_count, 1, 2**20, 2**24)
        name: Any = SimpleNamespace(name=self.name, is_copy=False, file=Path(), keep=lambda: None, give_up=lambda: None)
        self.membership = membership = GroupMembership(
            CONNECTION,
            name,
            self.partitions_count,
            self.url,
            SESSION_SECONDS,
            1,
            b"deployment",
            world.loop.time,
        )
        self.tasks = Tasks(self._fail)
        self.owners = Owners(self.partitions_count, membership.valid, membership.may_read)
        self.sender = RecordSender(backend.writer, self.owners, 2**24, 2**24)
        self.sessions = Sessions(self, self.owners, self.sender, backend)
        databases: Any = self.disk
        self.partitions = Partitions(
            self.owners, backend, databases, (self.sessions,), self.sessions.followers, self.tasks, membership
        )
        self.reads = StandbyReads(self.owners, self.partitions.standbys, backend)
        self._remains.append((backend, membership, self.tasks, self.partitions))
        world.loop.create_task(self._start(backend), context=self.process.context)

    async def _start(self, backend: KafkaBackend) -> None:
        await backend.start(self.partitions)
        self.tasks.spawn(self.sessions.bill(), "biller")
        self.tasks.spawn(self.sessions.watch(), "sources")
        self.tasks.spawn(self.sessions.deliveries.run(), "deliveries")
        await self.partitions.start()

    def _fail(self) -> None:
        """End the process; its supervisor restarts it."""
        self.ended += 1
        self.failure = self.tasks.failure or ""
        self.kill()
        world = self.world
        process = self.process

        def again() -> None:
            if self.process is process:
                self.start()

        world.loop.call_later(world.chance.uniform(0.2, 1.0), again, context=world.cluster.context)

    def kill(self) -> None:
        """End the process at once; messages already sent may still arrive. Its supervisor tells its other lanes."""
        self.process.kill()
        for lane in self._lanes() if self.world.watches else ():
            if not (lane.process.dead or lane.process.paused):
                told, context = lane.membership.neighbours.note_death, lane.process.context
                self.world.loop.call_soon(told, self.url, os.getpid(), context=context)

    def _lanes(self) -> list[Node]:
        """Return the other lanes of its machine."""
        return [one for one in self.world.nodes.values() if one.machine == self.machine and one is not self]

    @property
    def keeps_port(self) -> bool:
        """Whether its supervisor, which lives as long as any of its lanes, keeps its port for its next process."""
        return any(not lane.process.dead for lane in self._lanes())

    def refuse(self) -> None:
        """Drop what came to its private port: its machine was dead."""
        self._waiting.clear()

    async def stop(self) -> None:
        process, loop = self.process, self.world.loop
        if process.dead or process.paused:
            return

        async def end() -> None:
            await self.partitions.hand_over()
            await self.tasks.stop()
            await self.partitions.stop()

        ended = loop.create_task(end(), context=process.context)
        await asyncio.wait({ended}, timeout=20.0)
        self.kill()

    def lose_group(self) -> None:
        """Lose the assignment, as after a session without heartbeats, and rejoin."""
        membership = self.membership

        def lose() -> None:
            if membership._coordinator is not None:
                membership.lose("no heartbeat was answered")
                membership._coordinator.request_rejoin()

        if not (self.process.dead or self.process.paused):
            self.process.context.run(lose)

    def remove(self, other: Node) -> None:
        """Have the broker remove another node, by the last plan of this one."""

        def remove() -> None:
            for peer in self.membership._assignor.peers:
                if peer.url == other.url:
                    self.world.loop.create_task(self.membership._remove(peer, "it was taken for dead"))

        if not (self.process.dead or self.process.paused):
            self.process.context.run(remove)

    def stand_still(self) -> None:
        """If requested, simulate a session without answered heartbeats now."""
        if self.stalls:
            self.stalls -= 1
            self.membership.heard = self.membership.clock() - SESSION_SECONDS - 1.0

    # --- requests ---------------------------------------------------------------------------------------------------

    def serving(self) -> Mapping[int, SessionStore]:
        return {owner.number: owner.sessions for owner in self.owners.all_serving()} if self._answers() else {}

    def store(self, session: str) -> SessionStore | None:
        """Return the store from which it shows a session, None if it does not."""
        owner = self.owners.here.get(self.owners.number(session))
        return owner.sessions if owner is not None and owner.serving and self._answers() else None

    def _answers(self) -> bool:
        return not (self.process.dead or self.process.paused) and self.membership.may_read()

    def standbys(self) -> Mapping[int, PartitionRows]:
        """Return the stand-by tables that it maintains."""
        wanted = self.membership._assignor.assignment.standbys
        return {rows.number: rows for rows in self.partitions.standbys if rows.number in wanted}

    def read(self, session: str, seen: Callable[[SessionStore], None]) -> None:
        """Have it read a session as while the owner is away, if it stands by for it; `seen` gets what it has."""

        async def read() -> None:
            with suppress(Unavailable):
                await self.reads.as_of(session)
                with self.reads.rows(session).still():
                    seen(self.reads.session_store(session))

        with suppress(Unavailable):
            self.reads.rows(session)
            if not self.process.dead:
                self._take(read)

    def _take(self, request: Request) -> None:
        """Handle a request; one for a dead process waits for the next, unless the machine dies too."""
        if self.process.dead:
            self._waiting.append(request)
            return
        loop, context = self.world.loop, self.process.context
        loop.call_soon(lambda: loop.create_task(request(), context=context), context=context)

    async def ask(self, session: str, command: SessionCommand, seconds: float) -> Verdict:
        loop, context = self.world.loop, self.world.cluster.context
        answer: asyncio.Future[Verdict] = loop.create_future()

        def give(verdict: Verdict | None, error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None or verdict is None:
                answer.set_exception(error or AssertionError())
            else:
                answer.set_result(verdict)

        async def handle(node: Node, forwarded: bool) -> None:
            verdict, error = None, None
            try:
                if not forwarded and (url := node.owners.url(session)) is not None:
                    other = self.world.nodes[url]
                    other._take(lambda: handle(other, forwarded=True))
                    return
                store = node.sessions.serving(session)
                verdict = commands.foresee(store.head(session), command)
                if verdict is None:
                    verdict = await node.sender.submit(COMMANDS, session, command)
            except Exception as raised:
                error = raised
            loop.call_soon(give, verdict, error, context=context)

        if not self.process.dead:
            self._take(lambda: handle(self, forwarded=False))
        silent = loop.call_later(seconds, give, None, Unavailable("nothing came"))
        try:
            return await answer
        finally:
            silent.cancel()
