"""A node: assembles the streams of this process, and starts and stops them."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import mode
import structlog

from streams import agents
from streams.agents import NodeApp
from streams.alarms.watcher import NoRules
from streams.audio.decode import OpenFile
from streams.deliveries.deliveries import Deliveries
from streams.folding.followers import Followers
from streams.folding.presence import BEAT_SECONDS
from streams.models.loaded_models import LoadedModels
from streams.node.backend import LogBackend, Membership
from streams.node.deleted_projects import DeletedProjects
from streams.node.disk_watch import DiskWatch
from streams.node.files_watch import watch_files
from streams.node.jobs import JobWorkload
from streams.node.options import NodeOptions
from streams.node.owner import PartitionOwner, waits
from streams.node.owners import Owners
from streams.node.partitions import Partitions
from streams.node.placement import everything
from streams.node.ports import JobsPort, SessionsPort
from streams.node.sender import RecordSender
from streams.node.sessions import SessionWorkload
from streams.node.standby_reads import NodeStandby, StandbyJobs, StandbyReads, StandbySessions
from streams.node.tasks import Tasks
from streams.node.workload import Workload
from streams.services.service import JobService
from streams.tables.database import Databases
from streams.workers.workers import Workers
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.ports.alarms import Destinations, Rules
from topics.ports.health import Note, Reading
from topics.ports.ledger import Ledger
from topics.ports.stops import Stops

log = structlog.get_logger(__name__)

#: A waiting node logs its reason this often, and fails once a takeover has made no progress for `STUCK_SECONDS`, so
#: that its supervisor restarts it.
REPORT_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 90.0


class Node(mode.Service):  # type: ignore[misc]
    """Runs the streams of one process. Implements `topics.ports.health.Health`. Loop only.

    `sessions` and `jobs` are the edge's ports. `open_file` opens recordings to draw. Without a `ledger`, costs are not
    recorded. Without a `membership`, this process owns all partitions. mode starts the parts in order and stops them in
    reverse order. Without `stops`, stopped partitions wait for a restart. Without `rules`, no alarms are made, and
    without `destinations` none are delivered.
    """

    mundane_level = "debug"

    def __init__(
        self,
        options: NodeOptions,
        models: LoadedModels,
        backend: LogBackend,
        on_failure: Callable[[], None],
        open_file: OpenFile,
        workers: Workers,
        services: Mapping[Service, JobService] = MappingProxyType({}),
        ledger: Ledger | None = None,
        membership: Membership | None = None,
        stops: Stops | None = None,
        rules: Rules | None = None,
        destinations: Destinations | None = None,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.workers = workers
        self.tasks = Tasks(on_failure)
        self.app = NodeApp()
        self._sweep_seconds = options.sweep_seconds
        self._watched = options.files
        self._membership = membership = membership or everything(options.partitions)
        self.owners = Owners(options.partitions, membership.valid, membership.may_read, lambda: self.tasks.failure)
        self.sender = RecordSender(backend.writer, self.owners, options.part_bytes, options.share_bytes)
        self.followers = Followers()
        shared = (self.app, options, self.owners, self.sender, self.followers)
        rules = rules or NoRules()
        self.session_workload = SessionWorkload(*shared, models, backend, workers, ledger, rules)
        listeners = self.session_workload.listeners
        self.job_workload = JobWorkload(*shared, backend, services, ledger, open_file, listeners)
        agents.analyse_sessions(self.app, self.session_workload.analyser)
        agents.run_services(self.app, self.job_workload.runner)
        agents.bill(self.app, "bill_sessions", self.session_workload.biller)
        agents.bill(self.app, "bill_jobs", self.job_workload.biller)
        databases = Databases(options.directory, options.tables_left_out)
        self.partitions = Partitions(
            self.owners, backend, databases, self.workloads, self.followers, self.tasks, membership, stops
        )
        self.disks = DiskWatch(backend, self.owners, self.partitions.standbys)
        self.deleted_projects = DeletedProjects(self.workloads)
        ports = (self.owners, self.sender, self.followers, models, self.deleted_projects)
        tallies = options.tallies or (lambda kind: None)
        project_sessions, project_jobs = tallies("sessions"), tallies("jobs")
        of_sessions = (*ports, options.project_sessions, project_sessions, listeners, self.session_workload.intake)
        recordings, pictures = self.job_workload.recordings, self.job_workload.pictures
        of_jobs = (*ports, options.project_jobs, project_jobs, recordings, pictures)
        self.sessions, self.jobs = SessionsPort(*of_sessions), JobsPort(*of_jobs)
        #: Implements `topics.ports.alarms.Outbox` and `Alarms`.
        self.alarms = self.session_workload.outbox
        self.deliveries: Deliveries | None = None
        if destinations is not None:
            delivering = (self.alarms, destinations, rules, self.session_workload.open_streams, backend.log_ms)
            self.deliveries = Deliveries(self.app, options.deliveries, *delivering)
            agents.deliver_alarms(self.app, self.deliveries.deliverer)
        #: None if no other node can own a partition.
        self.standby: NodeStandby | None = None
        if not backend.exclusive:
            reads = StandbyReads(self.owners, self.partitions.standbys, backend)
            self.standby = NodeStandby(reads, StandbySessions(reads, *of_sessions), StandbyJobs(reads, *of_jobs))

    @property
    def served(self) -> asyncio.Event:
        return self.partitions.served

    @property
    def workloads(self) -> tuple[Workload[Any], ...]:
        return self.session_workload, self.job_workload

    # --- life -------------------------------------------------------------------------------------------------------

    def on_init_dependencies(self) -> Iterable[mode.Service]:
        workloads = (self.session_workload, self.job_workload)
        deliveries = () if self.deliveries is None else (self.deliveries,)
        return [self.workers, *workloads, *deliveries, self.app.agents, self.tasks]

    async def on_start(self) -> None:
        await self.backend.start(self.partitions)

    async def on_started(self) -> None:
        await self.partitions.start()
        works = {
            "presence": self._beat(),
            "sweeper": self._sweep(),
            "watch": self._watch(),
            "disks": self.disks.run(),
            "files": watch_files(self._watched),
        }
        for name, work in works.items():
            self.tasks.spawn(work, name)

    def withdraw(self) -> None:
        """Fail the readiness check and end all waiting reads, now and later: the node is about to stop."""
        self.followers.withdraw()
        self.session_workload.listeners.withdraw()

    async def on_stop(self) -> None:
        self.withdraw()

    async def on_shutdown(self) -> None:
        """Stop the partitions, after everything else."""
        await self.partitions.stop()

    def _crash(self, reason: BaseException) -> None:
        super()._crash(reason)
        self.tasks.fail(reason)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            for workload in self.workloads:
                await workload.sweep()
            self.sessions.publish()
            self.jobs.publish()

    async def _beat(self) -> None:
        """Note which partitions are served; what is not noted counts as absence."""
        while True:
            if self.owners.may_append() and self.backend.refuses() is None:
                now_ms = self.backend.log_ms()
                for owner in self.owners.all_serving():
                    with suppress(Unavailable):
                        owner.beat(now_ms)
            await asyncio.sleep(min(BEAT_SECONDS, self._sweep_seconds))

    async def _watch(self) -> None:
        """Log what the node waits for; raise Unavailable if the takeover of a partition is stuck."""
        #: Each owner that is coming, with its progress, and the monotonic time since when it has not changed.
        coming: dict[PartitionOwner, tuple[object, float]] = {}
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            now = time.monotonic()
            if (reason := self.partitions.waits()) is not None:
                log.warning("node.waiting", reason=reason)
            before, coming = coming, {}
            for owner in self.owners:
                if owner.is_coming and not owner.queued:
                    progress = owner.progress()
                    known = before.get(owner)
                    coming[owner] = known if known is not None and known[0] == progress else (progress, now)
            for owner, (_, since) in coming.items():
                if now - since > STUCK_SECONDS:
                    waited = f"no progress in {now - since:.0f} s of waiting for {owner.waiting}"
                    raise Unavailable(f"partition {owner.number}: {waited}")

    async def erase(self) -> None:
        """Erase what was deleted before from the files of this node: its tables, and the log if it is embedded.

        Wait for partitions that are being taken over: their tables are not open, and nobody knows which records of
        the log they need.

        Raises:
            Unavailable: not all of it; the next call continues.
        """
        standbys = self.partitions.standbys
        while not standbys.assigned or waits(self.owners) is not None:  # noqa: ASYNC110 (they take a moment)
            await asyncio.sleep(BEAT_SECONDS)
        for rows in [*(owner.rows for owner in self.owners if owner.has_table), *standbys]:
            rows.begin_erasure()
            await asyncio.to_thread(rows.erase)
        await self.backend.erase()
        await standbys.drop_unused()

    # --- health -----------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        return self.tasks.failure

    def ready(self) -> str | None:
        if self.tasks.failure is not None:
            return self.tasks.failure
        if self.owners.leaving or self.followers.withdrawn:
            return "the node is about to stop"
        # Once it serves, only what concerns the partitions that it takes over waits.
        serves = self.served.is_set() and self.owners.all_serving()
        return self.backend.changed or (None if serves else self.partitions.waits())

    def is_behind(self) -> bool:
        return bool(self.partitions.standbys.behind())

    def notes(self) -> list[Note]:
        """Return notes on anything lost, rebuilt or set aside that this process caused or found."""
        tables = self.partitions.tables
        notes: dict[Note, object] = {
            "writes are refused: the disk is full": self.disks.full(),
            "records may be lost": any(rebuilt.is_lost for rebuilt in tables.rebuilt),
            "a partition has stopped": any(owner.stopped for owner in self.owners),
            "a table was rebuilt": tables.rebuilt,
            "damaged tables were set aside": tables.aside(),
            "records were set aside": self.partitions.takeover.parked.total(),
            "records were removed before they were read": self.backend.removed,
            "the log does not keep what was promised": self.backend.unfit(),
        }
        return [note for note, is_so in notes.items() if is_so]

    def readings(self) -> Iterator[Reading]:
        """Yield the streams' metrics."""
        sessions, jobs, takeover = self.session_workload, self.job_workload, self.partitions.takeover
        tables = self.partitions.tables
        lost = sum(rebuilt.is_lost for rebuilt in tables.rebuilt)
        opened, listed = (sum(len(store.projects) for store in workload.all_serving()) for workload in self.workloads)
        yield Reading("earshot_windows_total", "Windows analysed and shown.", sessions.writer.windows)
        yield Reading("earshot_sessions", "Sessions here that are not deleted.", opened)
        yield Reading("earshot_jobs", "Jobs here that are not deleted.", listed)
        yield Reading("earshot_jobs_waiting", "Services of jobs that wait for their turn.", jobs.runner.load()[0])
        help = "Age of the oldest chunk that is not analysed."
        yield Reading("earshot_lag_seconds", help, sessions.analyser.ready.lag())
        yield Reading("earshot_job_lag_seconds", "Age of the oldest ready service of a job.", jobs.runner.lag())
        yield Reading("earshot_queue_bytes", "Bytes that wait for the log.", self.backend.writer.queued_bytes)
        yield Reading("earshot_pending_commands", "Commands without a verdict yet.", len(self.sender.verdicts))
        for topic, parked in takeover.parked.items():
            help = "Records moved to a dead-letter topic since the start; look there."
            yield Reading("earshot_parked_records_total", help, parked, {"topic": self.backend.topic_name(topic)})
        help = "Records that were removed before they were folded."
        yield Reading("earshot_removed_records_total", help, self.backend.removed)
        yield Reading("earshot_rebuilt_tables_total", "Tables rebuilt since the start.", len(tables.rebuilt))
        help = "Rebuilt tables that had more than the log: records may be lost."
        yield Reading("earshot_unfit_tables_total", help, lost)
        help = "Damaged tables that were set aside on the disk."
        yield Reading("earshot_aside_tables", help, len(tables.aside()))
        yield Reading("earshot_workers", "Workers that this node may keep busy.", self.workers.count)
        yield Reading("earshot_worker_deaths_total", "Worker processes that died.", self.workers.deaths)
        help = "Workers with something to do, average of ten seconds."
        yield Reading("earshot_workers_busy", help, sum(process.busy for process in self.workers.processes()))
        for owner in self.owners:
            help = "1 while this node serves a partition that it owns, 0 while it takes it over or has stopped it."
            yield Reading("earshot_partition_serving", help, owner.serving, {"partition": str(owner.number)})
        yield Reading("earshot_partitions", "Partitions that this node serves.", len(self.owners.all_serving()))
        help = "Partitions here that wait for an operator."
        yield Reading("earshot_stopped_partitions", help, self.owners.stopped())
        help = "Records of changelogs that the stand-by tables of this node lack."
        yield Reading("earshot_standby_behind_records", help, sum(self.partitions.behind.values()))
        help = "Assignments of partitions to this node."
        yield Reading("earshot_assignments_total", help, self.partitions.assignments)
        help = "Times that this process was removed from the group of nodes though it lived."
        yield Reading("earshot_survived_removals_total", help, self._membership.removals)
        help = "1 while the broker that coordinates the nodes does not answer."
        yield Reading("earshot_broker_away", help, self._membership.is_away)
        if self.deliveries is not None:
            yield from self.deliveries.deliverer.readings()
