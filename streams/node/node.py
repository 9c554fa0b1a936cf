"""A node: the partitions that this process owns, put together from their parts and led through one life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import structlog

from streams.driver.application import Application, ApplicationOptions
from streams.folding.followers import Followers
from streams.models.loaded_models import LoadedModels
from streams.node.agents import FoldingAgents
from streams.node.backend import LogBackend
from streams.node.jobs import JobWorkload
from streams.node.options import NodeOptions
from streams.node.partitions import OwnedPartitions
from streams.node.ports import JobsPort, SessionsPort
from streams.node.sender import RecordSender
from streams.node.sessions import SessionWorkload
from streams.node.workload import Workload
from streams.services.service import JobService
from topics import keys
from topics.catalog import TopicPartition
from topics.jobs.options import Service
from topics.ports.ledger import Ledger

log = structlog.get_logger(__name__)

STUCK_SECONDS: Final = 60.0


class Node:
    """The streams of one process. Implements `topics.ports.health.Health`; `sessions` and `jobs` are the edge's ports.

    `services` run the services of jobs; without a `ledger` what they cost is written nowhere.
    """

    def __init__(
        self,
        options: NodeOptions,
        models: LoadedModels,
        backend: LogBackend,
        on_failure: Callable[[], None],
        services: Mapping[Service, JobService] = MappingProxyType({}),
        ledger: Ledger | None = None,
    ) -> None:
        self.backend = backend
        self.failure: str | None = None
        #: Set once, when this node first serves.
        self.served = asyncio.Event()
        self._sweep_seconds = options.sweep_seconds
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._catching_up: asyncio.Task[None] | None = None
        embedded = backend.embedded_log is not None
        self.application = Application(_application_options(options, backend), self._fail, backend.embedded_log)
        self.partitions = OwnedPartitions(self.application, options.partitions, alone=embedded)
        self.sender = RecordSender(self.application, options.partitions, ordered=embedded)
        self.followers = Followers()
        self.agents = FoldingAgents(self.application, self.partitions, self.sender)
        shared = (options, self.partitions, self.sender, self.followers, self.agents)
        self.session_workload = SessionWorkload(*shared, models, backend.chunk_reader)
        self.job_workload = JobWorkload(*shared, backend.part_reader, services, ledger)
        self.sessions = SessionsPort(self.partitions, self.sender, self.followers, models)
        self.jobs = JobsPort(self.partitions, self.sender, self.followers, models)
        self.application.on_rebalance(self._lose, self._regain)

    @property
    def workloads(self) -> tuple[Workload[Any], ...]:
        """What the partitions are owned for."""
        return self.session_workload, self.job_workload

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare the log, start everything, and return; `ready` tells when requests are served."""
        await self.backend.prepare(self.floor)
        for workload in self.workloads:
            workload.start(self._on_task_end)
        await self.application.start()
        self._spawn(self._sweep(), "sweeper")

    def withdraw(self) -> None:
        """Say that the node is about to stop, to health checks and to every reader that waits, now or later."""
        self.followers.withdraw()

    async def stop(self) -> None:
        """Commit what is done and stop."""
        self.withdraw()
        self.partitions.ready = False
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for workload in self.workloads:
            await workload.stop()
        await self.application.stop()
        await self.backend.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            for workload in self.workloads:
                await workload.sweep(self.backend.now_ms())

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = f"{type(error).__name__}: {error}"
            log.error("node.failed", error=self.failure, exc_info=error)
            self._on_failure()

    # --- partitions -------------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        """A rebalance takes the partitions away."""
        if self._catching_up is not None:
            self._catching_up.cancel()
        self.partitions.lose()
        self.followers.lose()
        for workload in self.workloads:
            workload.lose()

    def _regain(self) -> None:
        """A rebalance has ended: the tables are recovered."""
        self._catching_up = self._spawn(self._catch_up(), "catch-up")

    async def _catch_up(self) -> None:
        await self.partitions.catch_up(self._survey)
        sessions, jobs = (workload.begin() for workload in self.workloads)
        log.info("node.ready", unfinished_sessions=sessions, unfinished_jobs=jobs)
        self.served.set()

    async def _survey(self) -> None:
        for partition in self.partitions.assigned():
            for workload in self.workloads:
                await workload.survey(partition)

    def floor(self, tp: TopicPartition) -> int | None:
        """Return the lowest offset of a partition that is still needed, None while this node does not know it."""
        if not self.partitions.ready:
            return None
        committed: int | None = self.application.consumer.committed_offset(tp)
        references = {workload.commands: workload.references for workload in self.workloads}.get(tp.topic)
        lowest = None if references is None else references.lowest(tp.partition)
        return committed if committed is None or lowest is None else min(committed, lowest)

    # --- health -----------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        """Return None while the process works, else why it is about to stop."""
        since = self.application.consumer.working_since()
        if self.failure is None and since is not None and time.monotonic() - since > STUCK_SECONDS:
            return f"records of the log have been in work for {time.monotonic() - since:.0f} s"
        return self.failure

    def ready(self) -> str | None:
        """Return None when requests can be served, else what is waited for."""
        if self.failure is not None:
            return self.failure
        if self.followers.withdrawn:
            return "the node is about to stop"
        return None if self.partitions.ready else "the log is being read"

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return (name, sentence, value) of what the metrics page shows of the streams."""
        sessions, jobs = self.session_workload, self.job_workload
        return [
            ("earshot_windows", "Windows analysed and folded by this process.", sessions.results.windows),
            ("earshot_lag_seconds", "Age of the oldest chunk that is not analysed.", sessions.analyser.lag()),
            ("earshot_job_lag_seconds", "Age of the oldest ready service of a job.", jobs.runner.lag()),
            ("earshot_queue_bytes", "Bytes that wait for the log.", self.sender.writer.queued_bytes),
            ("earshot_parked_records", "Records moved to a dead-letter topic; look there.", self.agents.parked),
            ("earshot_pending_commands", "Commands without a verdict yet.", len(self.sender.verdicts)),
        ]


def _application_options(options: NodeOptions, backend: LogBackend) -> ApplicationOptions:
    return ApplicationOptions(
        broker=backend.broker,
        directory=options.directory,
        partitions=options.partitions,
        record_limit=options.record_limit,
        queue_bytes=options.queue_bytes,
        instance=_instance(options.directory),
        url=options.url,
    )


def _instance(directory: Path) -> str:
    """Return the name of the node whose tables are in a directory, which is chosen at its first start."""
    file = directory / "node-id"
    if not file.exists():
        file.write_text(keys.new_id())
    return file.read_text().strip()
