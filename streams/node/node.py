"""A node: assembles the streams of this process, and starts and stops them."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import mode
import structlog

from streams import agents
from streams.agents import NodeApp
from streams.audio.decode import OpenFile
from streams.folding.followers import Followers
from streams.models.loaded_models import LoadedModels
from streams.node.backend import LogBackend, Membership
from streams.node.disk_watch import DiskWatch
from streams.node.files_watch import watch_files
from streams.node.jobs import JobWorkload
from streams.node.options import NodeOptions
from streams.node.owners import Owners
from streams.node.partitions import Partitions
from streams.node.ports import JobsPort, SessionsPort
from streams.node.sender import RecordSender
from streams.node.sessions import SessionWorkload
from streams.node.tasks import Tasks
from streams.node.workload import Workload
from streams.services.service import JobService
from streams.tables.database import Databases
from streams.workers.workers import Workers
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.ports.health import Note
from topics.ports.ledger import Ledger

log = structlog.get_logger(__name__)

#: A waiting node logs its reason this often, and fails after `STUCK_SECONDS`, so that its supervisor restarts it.
REPORT_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 90.0


class Node(mode.Service):  # type: ignore[misc]
    """Runs the streams of one process. Implements `topics.ports.health.Health`. Loop only.

    `sessions` and `jobs` are the edge's ports. `open_file` opens the files of sessions, `open_in_background` recordings
    to draw. Without a `ledger`, costs are not recorded. Without a `membership`, this process owns all partitions. mode
    starts the parts in order and stops them in reverse order.
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
        open_in_background: OpenFile | None = None,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.workers = workers
        self.tasks = Tasks(on_failure)
        self.app = NodeApp()
        self._sweep_seconds = options.sweep_seconds
        self._watched = options.files
        #: The reason for waiting, and the monotonic time since when.
        self._waiting: tuple[str, float] | None = None
        valid = (lambda: True) if membership is None else membership.valid
        self.owners = Owners(options.partitions, valid, lambda: self.tasks.failure)
        self.sender = RecordSender(backend.writer, self.owners, options.part_bytes, options.share_bytes)
        self.followers = Followers()
        shared = (self.app, options, self.owners, self.sender, self.followers)
        self.session_workload = SessionWorkload(*shared, models, backend, open_file, workers, ledger)
        listeners = self.session_workload.listeners
        self.job_workload = JobWorkload(*shared, backend, services, ledger, open_in_background or open_file, listeners)
        agents.analyse_sessions(self.app, self.session_workload.analyser)
        agents.run_services(self.app, self.job_workload.runner)
        agents.bill(self.app, "bill_sessions", self.session_workload.biller)
        agents.bill(self.app, "bill_jobs", self.job_workload.biller)
        databases = Databases(options.directory, options.tables_left_out)
        self.partitions = Partitions(
            self.owners, backend, databases, self.workloads, self.followers, self.tasks, membership
        )
        self.disks = DiskWatch(backend, self.owners, self.partitions.standbys)
        ports = (self.owners, self.sender, self.followers, models)
        self.sessions = SessionsPort(*ports, options.project_sessions, listeners, self.session_workload.intake)
        self.jobs = JobsPort(*ports, options.project_jobs, self.job_workload.recordings, self.job_workload.pictures)

    @property
    def served(self) -> asyncio.Event:
        return self.partitions.served

    @property
    def workloads(self) -> tuple[Workload[Any], ...]:
        return self.session_workload, self.job_workload

    # --- life -------------------------------------------------------------------------------------------------------

    def on_init_dependencies(self) -> Iterable[mode.Service]:
        return [self.workers, self.session_workload, self.job_workload, self.app.agents, self.tasks]

    async def on_start(self) -> None:
        await self.backend.start(self.partitions)

    async def on_started(self) -> None:
        await self.partitions.start()
        works = {
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
                await workload.sweep(self.backend.now_ms())

    async def _watch(self) -> None:
        """Log what the node waits for; raise Unavailable if a takeover is stuck."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            reason = self.partitions.waits()
            if reason is None or self._waiting is None or reason != self._waiting[0]:
                self._waiting = None if reason is None else (reason, time.monotonic())
            if reason is not None and self._waiting is not None:
                seconds = time.monotonic() - self._waiting[1]
                log.warning("node.waiting", reason=reason, seconds=round(seconds))
                if seconds > STUCK_SECONDS and any(owner.waiting for owner in self.owners):
                    raise Unavailable(f"no progress in {seconds:.0f} s of waiting for {reason}")

    # --- health -----------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        return self.tasks.failure

    def ready(self) -> str | None:
        if self.tasks.failure is not None:
            return self.tasks.failure
        if self.followers.withdrawn:
            return "the node is about to stop"
        return self.partitions.waits() or self.disks.full()

    def notes(self) -> list[Note]:
        """Return notes on anything lost, rebuilt or set aside that this process caused or found."""
        tables = self.partitions.tables
        notes: dict[Note, object] = {
            "records may be lost": any(rebuilt.is_lost for rebuilt in tables.rebuilt),
            "a table was rebuilt": tables.rebuilt,
            "damaged tables were set aside": tables.aside(),
            "records were set aside": self.partitions.takeover.parked,
        }
        return [note for note, is_so in notes.items() if is_so]

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return (name, description, value) of the streams' metrics."""
        sessions, jobs, takeover = self.session_workload, self.job_workload, self.partitions.takeover
        tables = self.partitions.tables
        workers = self.workers.processes()
        busy = sum(process.load for process in workers)
        lost = sum(rebuilt.is_lost for rebuilt in tables.rebuilt)
        return [
            ("earshot_windows", "Windows analysed and folded by this process.", sessions.results.windows),
            ("earshot_lag_seconds", "Age of the oldest chunk that is not analysed.", sessions.analyser.ready.lag()),
            ("earshot_job_lag_seconds", "Age of the oldest ready service of a job.", jobs.runner.lag()),
            ("earshot_queue_bytes", "Bytes that wait for the log.", self.backend.writer.queued_bytes),
            ("earshot_parked_records", "Records moved to a dead-letter topic; look there.", takeover.parked),
            ("earshot_rebuilt_tables", "Tables rebuilt since the start.", len(tables.rebuilt)),
            ("earshot_unfit_tables", "Rebuilt tables that had more than the log: records may be lost.", lost),
            ("earshot_aside_tables", "Damaged tables that were set aside on the disk.", len(tables.aside())),
            ("earshot_pending_commands", "Commands without a verdict yet.", len(self.sender.verdicts)),
            ("earshot_workers", "Worker processes.", len(workers)),
            ("earshot_worker_deaths", "Worker processes that died since the start.", self.workers.deaths),
            ("earshot_workers_busy", "Busy worker processes, average of ten seconds.", busy),
            ("earshot_partitions", "Partitions that this node serves.", len(self.owners.all_serving())),
        ]
