"""A node: the partitions that this process owns, put together from their parts and led through one life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import structlog

from streams.audio.decode import OpenFile
from streams.disk import DiskFull
from streams.folding import retry
from streams.folding.followers import Followers
from streams.folding.suspects import Suspects
from streams.log import StoredRecord
from streams.models.loaded_models import LoadedModels
from streams.node.backend import LogBackend, Membership
from streams.node.disk_watch import DiskWatch
from streams.node.jobs import JobWorkload
from streams.node.lane import Lane, PartitionStopped
from streams.node.options import NodeOptions
from streams.node.owner import PartitionOwner, waits
from streams.node.owners import Owners
from streams.node.ports import JobsPort, SessionsPort
from streams.node.sender import RecordSender
from streams.node.sessions import SessionWorkload
from streams.node.standbys import Standbys
from streams.node.takeover import Takeover
from streams.node.workload import Workload
from streams.ownership import Assignment
from streams.services.service import JobService
from streams.tables.database import Databases
from streams.tables.rows import encode_positions
from topics.catalog import CHANGELOG, FOLD_ORDER, TopicPartition
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.keys import POSITIONS
from topics.ports.ledger import Ledger

log = structlog.get_logger(__name__)

#: Seconds between notes of how far the topics are folded: work that a crash repeats.
NOTE_SECONDS: Final = 0.5
#: A node that waits says for what this often, and gives up after so long: whoever supervises it starts it again.
REPORT_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 90.0
#: Seconds between looks whether somebody else wrote to a topic of an owned partition.
LOOK_SECONDS: Final = 5.0


class Node:
    """The streams of one process. Implements `topics.ports.health.Health`; `sessions` and `jobs` are the edge's ports.

    `open_file` opens the audio of sessions, `open_in_background` that of which pictures are made. `services` run the
    services of jobs; without a `ledger` what they and sessions cost is written nowhere. Without a `membership` this
    process owns all partitions. Implements `streams.log.LogUser` too.
    """

    def __init__(
        self,
        options: NodeOptions,
        models: LoadedModels,
        backend: LogBackend,
        on_failure: Callable[[], None],
        open_file: OpenFile,
        services: Mapping[Service, JobService] = MappingProxyType({}),
        ledger: Ledger | None = None,
        membership: Membership | None = None,
        open_in_background: OpenFile | None = None,
    ) -> None:
        self.backend = backend
        self.failure: str | None = None
        #: Set once, when this node first serves.
        self.served = asyncio.Event()
        self._sweep_seconds = options.sweep_seconds
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        #: What is waited for, and since when.
        self._waiting: tuple[str, float] | None = None
        self._membership = membership
        self.owners = Owners(options.partitions, self.may_append)
        self.sender = RecordSender(backend.writer, self.owners, options.part_bytes, options.share_bytes)
        self.followers = Followers()
        shared = (options, self.owners, self.sender, self.followers, Suspects())
        self.session_workload = SessionWorkload(*shared, models, backend.chunk_reader, open_file, ledger)
        self.job_workload = JobWorkload(*shared, backend.part_reader, services, ledger, open_in_background or open_file)
        agents = {topic: agent for workload in self.workloads for topic, agent in workload.agents.items()}
        self.takeover = Takeover(
            Databases(options.directory), backend, agents, membership is not None, self.owners.note_change
        )
        self.standbys = Standbys(self.takeover, backend)
        self.disks = DiskWatch(backend, self.owners, self.standbys)
        ports = (self.owners, self.sender, self.followers, models)
        self.sessions = SessionsPort(*ports, options.project_sessions, self.session_workload.listeners)
        self.jobs = JobsPort(*ports, options.project_jobs, self.job_workload.recordings, self.job_workload.pictures)

    @property
    def workloads(self) -> tuple[Workload[Any], ...]:
        """What the partitions are owned for."""
        return self.session_workload, self.job_workload

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare the log, start everything, and return; `ready` tells when requests are served."""
        await self.backend.start(self)
        for workload in self.workloads:
            workload.start(self._on_task_end)
        if self._membership is None:
            self.assign(Assignment(frozenset(range(self.owners.partitions))))
        else:
            await self._membership.start(self.assign, self.lose_all, self.fail)
            self._spawn(self._look(), "look")
        for work, name in ((self._sweep(), "sweeper"), (self._note(), "positions"), (self._watch(), "watch")):
            self._spawn(work, name)
        self._spawn(self.disks.run(), "disks")

    def withdraw(self) -> None:
        """Say that the node is about to stop, to health checks and to every reader that waits, now or later."""
        self.followers.withdraw()
        self.session_workload.listeners.withdraw()

    async def stop(self) -> None:
        """Note what is done and stop."""
        self.withdraw()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for workload in self.workloads:
            await workload.stop()
        if self.failure is None and self.may_append():
            for owner in self.owners.all_serving():
                self._note_positions(owner)
            try:
                await self.backend.writer.flush()
                await asyncio.sleep(0)  # Whoever waits for an acknowledgement notes it.
            except Exception as error:
                log.warning("log.not_flushed", error=repr(error))
        if self._membership is not None:
            await self._membership.stop()
        await self.standbys.stop()
        for owner in self.owners:
            owner.close("the node has stopped")
            owner.rows.close()
        self.owners.here.clear()
        await self.backend.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            for workload in self.workloads:
                try:
                    await workload.sweep(self.backend.now_ms())
                except Unavailable as error:
                    log.warning("sweep.later", error=str(error))

    async def _note(self) -> None:
        while True:
            await asyncio.sleep(NOTE_SECONDS)
            if self.may_append():
                for owner in self.owners.all_serving():
                    self._note_positions(owner)

    def _note_positions(self, owner: PartitionOwner) -> None:
        """Log how far an owner's topics are folded; behind the rows that come of it, so it is never ahead of them."""
        if (positions := owner.positions()) == owner.noted:
            return
        owner.noted = positions
        appended = self.backend.writer.append(
            CHANGELOG, owner.number, POSITIONS, encode_positions(positions), bounded=False, epoch=owner.rows.epoch
        )

        def note(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None or owner.closed or owner.suspicions:
                return
            try:
                owner.rows.note(positions, done.result().offset + 1)
            except DiskFull:
                owner.noted = None  # They are logged and noted again.
            else:
                owner.durable = positions

        appended.add_done_callback(note)

    async def _watch(self) -> None:
        """Say what is waited for; a wait without an end is a failure."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            reason = self._waits()
            if reason is None or self._waiting is None or reason != self._waiting[0]:
                self._waiting = None if reason is None else (reason, time.monotonic())
            if reason is not None and self._waiting is not None:
                seconds = time.monotonic() - self._waiting[1]
                log.warning("node.waiting", reason=reason, seconds=round(seconds))
                if seconds > STUCK_SECONDS and any(owner.waiting for owner in self.owners):
                    raise Unavailable(f"for {seconds:.0f} s nothing has come of waiting for {reason}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Stop for good: the health check is red from now on."""
        if self.failure is None:
            self.failure = f"{type(error).__name__}: {error}"
            log.error("node.failed", error=self.failure, exc_info=error)
            self._on_failure()

    # --- partitions -------------------------------------------------------------------------------------------------

    def assign(self, assignment: Assignment) -> None:
        """Close what is not owned any more, begin to take over what is new, and keep the rest as it is."""
        here = self.owners.here
        self._close([number for number in here if number not in assignment.owned], "it went to another node")
        self.owners.elsewhere = assignment.urls
        fresh = [PartitionOwner(self.standbys.take(number)) for number in sorted(assignment.owned - here.keys())]
        here.update((owner.number, owner) for owner in fresh)
        self.standbys.keep(assignment.standbys)
        self.owners.note_change()
        log.info("node.assigned", partitions=len(here), new=len(fresh), standbys=len(assignment.standbys))
        if fresh:
            self._spawn(self._take_over(fresh), "takeover")

    def lose_all(self, reason: str) -> None:
        """Close everything: others may own it."""
        if self.owners.here:
            log.warning("node.lost", reason=reason, partitions=len(self.owners.here))
        self.backend.drop(reason)
        self._close(list(self.owners.here), reason)

    def _close(self, numbers: Sequence[int], reason: str) -> None:
        if not numbers:
            return
        lost = {number: self.owners.here.pop(number) for number in numbers}
        for owner in lost.values():
            owner.close(f"partition {owner.number} is not here any more: {reason}")
            self.standbys.give(owner.rows)
        self.followers.lose(lambda id: self.owners.number(id) in lost)
        for workload in self.workloads:
            workload.lose(numbers)
        self.owners.note_change()

    async def _take_over(self, owners: Sequence[PartitionOwner]) -> None:
        began, failures, unfinished = time.monotonic(), 0, 0
        while owners := [owner for owner in owners if not owner.closed and owner.stopped is None]:
            try:
                await self.takeover.run(owners, self._survey)
                break
            except Exception as error:
                # A table may be closed under it, when its partition goes again.
                if not isinstance(error, Unavailable) and not any(owner.closed for owner in owners):
                    raise
                failures += 1
                log.warning("takeover.again", error=repr(error))
                await asyncio.sleep(retry.pause(failures))
        for owner in owners:
            if owner.closed or owner.stopped is not None:
                continue
            owner.serve()
            unfinished += sum(workload.begin(owner) for workload in self.workloads)
        self.owners.note_change()
        log.info(
            "node.ready", partitions=len(owners), seconds=round(time.monotonic() - began, 3), unfinished=unfinished
        )
        self.served.set()

    async def _survey(self, owner: PartitionOwner) -> None:
        for workload in self.workloads:
            await workload.survey(owner)

    def deliver(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        """Fold what this process appended, now that it is durable."""
        owner = self.owners.here.get(tp.partition)
        lane = None if owner is None else owner.lanes.get(tp.topic)
        if owner is None or lane is None or owner.stopped is not None:
            return
        try:
            if not lane.deliver(records):
                self._begin_to_catch_up(owner, lane)
        except Exception as error:
            self.fail(error)

    def _begin_to_catch_up(self, owner: PartitionOwner, lane: Lane) -> None:
        self._spawn(self._catch_up(owner, lane), f"catch-up-{lane.tp.topic}-{lane.tp.partition}")

    async def _catch_up(self, owner: PartitionOwner, lane: Lane) -> None:
        """Fetch what others have appended; their commands before their results, which come of them."""
        try:
            async with owner.catching_up:
                if lane.tp.topic not in FOLD_ORDER[0]:
                    await self._catch_up_commands(owner)
                await lane.catch_up()
        except PartitionStopped as error:
            self.takeover.stop(owner, error)
        except Exception:
            if not owner.closed:
                raise

    async def _catch_up_commands(self, owner: PartitionOwner) -> None:
        lanes = {owner.lanes[topic].tp: owner.lanes[topic] for topic in FOLD_ORDER[0]}
        bounds = await retry.until_available(lambda: self.backend.bounds(list(lanes)))
        for tp, commands in lanes.items():
            commands.fall_behind(bounds[tp][1])
            await commands.catch_up()

    def suspect(self, tp: TopicPartition) -> None:
        """Note nothing more of a table's place in its changelog until it is known who else wrote to it."""
        if (owner := self.owners.here.get(tp.partition)) is not None:
            owner.suspicions += 1

    def overtaken(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        """Write again what an owner that was one has put into the changelog, and close what has a later owner."""
        owner = self.owners.here.get(tp.partition)
        if owner is None or not owner.rows.epoch:
            return
        owner.suspicions -= 1
        owner.noted = None  # What was noted meanwhile was not taken down.
        others = [record for record in records if record.epoch != owner.rows.epoch]
        log.warning("changelog.overtaken", partition=tp.partition, records=len(others), epoch=owner.rows.epoch)
        if any(record.epoch > owner.rows.epoch for record in others):
            self._close([tp.partition], "a later owner has written to its changelog")
        else:
            owner.rows.write_again(sorted({record.key for record in others if record.key is not None}))

    async def _look(self) -> None:
        """See what others have appended: an owner that was may do so late, and nothing would follow on it."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            serving = self.owners.all_serving()
            lanes = {lane.tp: (owner, lane) for owner in serving for lane in owner.lanes.values() if lane.level}
            changelogs = [TopicPartition(CHANGELOG, owner.number) for owner in serving]
            try:
                bounds = await self.backend.bounds([*lanes, *changelogs]) if serving else {}
            except Unavailable as error:
                log.warning("log.away", error=str(error))
                continue
            for tp, (owner, lane) in lanes.items():
                end = bounds[tp][1]
                # What is on its way here has been appended by this process; anything else stays behind for good.
                if lane.level and not owner.closed and lane.seen_behind(end):
                    lane.fall_behind(end)
                    self._begin_to_catch_up(owner, lane)
            for tp in changelogs:
                if tp.partition in self.owners.here:
                    self.backend.note_end(tp, bounds[tp][1])

    def may_append(self) -> bool:
        """Return whether nobody else can own what this node owns."""
        return self._membership is None or self._membership.valid()

    def floor(self, tp: TopicPartition) -> int | None:
        """Return the lowest offset of a partition that is still needed, None while this node does not know it."""
        owner = self.owners.here.get(tp.partition)
        return None if owner is None else owner.floor(tp.topic)

    # --- health -----------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        """Return None while the process works, else why it is about to stop."""
        return self.failure

    def ready(self) -> str | None:
        """Return None when requests can be served, else what is waited for."""
        if self.failure is not None:
            return self.failure
        if self.followers.withdrawn:
            return "the node is about to stop"
        return self._waits() or self.disks.full()

    def _waits(self) -> str | None:
        if self._membership is not None and (reason := self._membership.waiting()) is not None:
            return reason
        if not self.owners.here:
            return "this node has no partitions: there are more nodes than partitions"
        return waits(self.owners)

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return (name, sentence, value) of what the metrics page shows of the streams."""
        sessions, jobs = self.session_workload, self.job_workload
        return [
            ("earshot_windows", "Windows analysed and folded by this process.", sessions.results.windows),
            ("earshot_lag_seconds", "Age of the oldest chunk that is not analysed.", sessions.analyser.lag()),
            ("earshot_job_lag_seconds", "Age of the oldest ready service of a job.", jobs.runner.lag()),
            ("earshot_queue_bytes", "Bytes that wait for the log.", self.backend.writer.queued_bytes),
            ("earshot_parked_records", "Records moved to a dead-letter topic; look there.", self.takeover.parked),
            ("earshot_pending_commands", "Commands without a verdict yet.", len(self.sender.verdicts)),
            ("earshot_partitions", "Partitions that this node serves.", len(self.owners.all_serving())),
        ]
