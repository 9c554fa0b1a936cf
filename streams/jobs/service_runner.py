"""Runs the services of unfinished jobs; the rows say what there is to do.

The fold says which jobs have work (`enqueue`), and their heads say which services are ready. An agent takes those that
have a place, and runs each to its end (`streams/agents.py`). Nothing here holds a partition.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import mode
import msgspec
import structlog
from faust import App

from streams.channel import WorkChannel
from streams.folding import retry
from streams.folding.lives import Lives
from streams.jobs.run_context import Emit, JobRun, Note, PartReader, StoreOf
from streams.jobs.spool import Spool
from streams.services.service import JobService, RunSummary, ServiceRun
from streams.turns import Turns
from topics import keys
from topics.errors import EarshotError, NotOwned, ServiceFault, Unavailable
from topics.folding import DEADLY, DEATHS, KILLED, KILLS
from topics.jobs.options import Service
from topics.jobs.records import Finished, Started, Stopped

log = structlog.get_logger(__name__)

#: An end that was appended and is not folded after this long was lost to another run: the head is asked again.
FOLDED_SECONDS: Final = 60.0
#: The longest pause between attempts; readers of the job hear of each attempt.
LONGEST_PAUSE_SECONDS: Final = 30.0
#: Runs that were cancelled get this long to clean up when the node stops.
STOP_SECONDS: Final = 10.0
LONGEST_ERROR: Final = 1000


class PendingService(msgspec.Struct, eq=False):
    """One service of a job, from the moment that it is ready until its end is folded."""

    job: str
    service: Service
    project: str
    #: Log time (ms) of the acceptance.
    created: int
    #: Since when it waits (monotonic seconds), None once it has ended.
    since: float | None
    failures: int = 0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None


class MissingService:
    """Stands for a service that this deployment lacks: every run fails. Loop only."""

    limit = 1

    def __init__(self, service: Service) -> None:
        self.service = service

    async def perform(self, work: ServiceRun) -> RunSummary:
        raise ServiceFault(f"{self.service} is not available in this deployment")


class ReadyServices(WorkChannel[PendingService]):
    """Services of jobs that wait for a place. Loop only.

    A service allows a number of runs at a time. Projects take turns to begin one, with their oldest job first. A
    project without a run does not wait for the long runs of others: it gets one run more than the service allows.
    """

    def __init__(self, app: App, limits: Mapping[Service, int]) -> None:
        """Begin without any; `limits` says how many runs of each service go on at a time."""
        super().__init__(app)
        self._limits = limits
        self._waiting: dict[Service, Turns[PendingService]] = {service: Turns() for service in limits}
        #: Runs that go on, by project.
        self._running: dict[Service, Counter[str]] = {service: Counter() for service in limits}

    @property
    def actors(self) -> int:
        return sum(limit + 1 for limit in self._limits.values())

    def add(self, pending: PendingService) -> None:
        pending.timer = None
        self._waiting[pending.service].put(pending.project, pending, pending.created)
        self.wake()

    def discard(self, pending: PendingService) -> None:
        self._waiting[pending.service].discard(pending.project, pending)

    def take(self) -> PendingService | None:
        """Return the next run, or None while there is no place; `done` must be called for it."""
        for service, waiting in self._waiting.items():
            running = self._running[service]
            if not waiting or (places := self._limits[service] - running.total()) < 0:
                continue
            if (pending := waiting.take() if places else waiting.take(passed_over=running)) is not None:
                running[pending.project] += 1
                return pending
        return None

    def done(self, pending: PendingService) -> None:
        """A run has ended, in whatever way: its place is free."""
        running = self._running[pending.service]
        running[pending.project] -= 1
        if not running[pending.project]:
            del running[pending.project]
        self.wake()


class Runner(mode.Service):  # type: ignore[misc]
    """Runs the services of all jobs of a node. Loop only."""

    mundane_level = "debug"

    def __init__(
        self,
        app: App,
        services: Mapping[Service, JobService],
        store_of: StoreOf,
        source: PartReader,
        emit: Emit,
        note: Note,
        spool: Path,
        lives: Lives,
    ) -> None:
        """Begin with nothing to do; `spool` is a directory of this process only, for the audio of runs."""
        super().__init__()
        self.services: dict[Service, JobService] = {
            service: services.get(service) or MissingService(service) for service in Service
        }
        self.store_of = store_of
        self.source = source
        self.emit = emit
        self.note = note
        self.lives = lives
        self.spool = Spool(spool)
        #: Services that ran when the process died that had them.
        self._suspected: set[tuple[str, Service]] = set()
        #: Held by the one of them that runs: else an innocent one is counted three times with the guilty.
        self._turn = asyncio.Lock()
        self._pending: dict[str, dict[Service, PendingService]] = {}
        #: Services that wait for a place; the agent takes them from here.
        self.ready = ReadyServices(app, {service: self.services[service].limit for service in Service})
        #: Including those of forgotten jobs, until they have ended.
        self._tasks: set[asyncio.Task[None]] = set()

    # --- life -------------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        self.spool.clear()

    async def on_stop(self) -> None:
        """Cancel everything, and begin nothing more. The rows still have everything that has not ended."""
        for job in list(self._pending):
            self.forget(job)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)

    def suspect(self, job: str) -> None:
        """A job was unfinished when its partition came: a process may have died of one of its services that ran."""
        if (head := self.store_of(job).head(job)) is not None:
            self._suspected.update((job, entry.service) for entry in head.entries if entry.begun and not entry.ended)

    def enqueue(self, job: str) -> None:
        """Services of a job may have become ready."""
        try:
            store = self.store_of(job)
        except NotOwned:
            return  # Should the partition come back, the job is found in the rows.
        except Unavailable:
            # This node may own it still: it has not heard of the others for a moment.
            asyncio.get_running_loop().call_later(retry.FIRST_SECONDS, self.enqueue, job)
            return
        head = store.head(job)
        if head is None or not (ready := head.ready):
            return
        services = self._pending.setdefault(job, {})
        if not (fresh := [service for service in ready if service not in services]):
            return
        accepted = store.accepted(job)
        project = "" if accepted is None else accepted.project
        for service in fresh:
            services[service] = PendingService(job, service, project, head.created, time.monotonic())
            self.ready.add(services[service])

    def forget(self, job: str) -> None:
        """The job is gone: cancel its runs."""
        self._suspected = {(of, service) for of, service in self._suspected if of != job}
        for pending in self._pending.pop(job, {}).values():
            if pending.timer is not None:
                pending.timer.cancel()
            elif pending.task is not None:
                pending.task.cancel()
            else:
                self.ready.discard(pending)
        self.spool.drop(job)

    def jobs(self) -> list[str]:
        """Return the jobs with services that run, or wait for it."""
        return list(self._pending)

    def load(self) -> tuple[int, int]:
        """Return how many services of jobs are ready or run, and how many may run at a time."""
        pending = (one for services in self._pending.values() for one in services.values() if one.since is not None)
        return sum(1 for _ in pending), sum(service.limit for service in self.services.values())

    def lag(self) -> float:
        """Return for how many seconds the service that has been ready longest waits to begin, or to begin again."""
        since = [
            pending.since
            for services in self._pending.values()
            for pending in services.values()
            if pending.task is None and pending.since is not None
        ]
        return time.monotonic() - min(since) if since else 0.0

    # --- runs -------------------------------------------------------------------------------------------------------

    async def run(self, pending: PendingService) -> None:
        """Run a service that was taken from `ready`; return when the run has ended, or its job is gone.

        Raises:
            BaseException: a fault of ours, that ends the process.
        """
        name = f"job-{keys.shown(pending.job)}-{pending.service}"
        # A task of its own, which `forget` cancels without the actor that waits for it.
        pending.task = task = asyncio.create_task(self._attempt(pending), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait({task})
        finally:
            self.ready.done(pending)
        pending.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        if self._pending.get(pending.job, {}).get(pending.service) is not pending:
            return
        clock = asyncio.get_running_loop()
        if pending.since is None:
            pending.timer = clock.call_later(FOLDED_SECONDS, self._close, pending)
        else:
            pending.failures += 1
            pause = retry.pause(pending.failures, LONGEST_PAUSE_SECONDS)
            pending.timer = clock.call_later(pause, self.ready.add, pending)

    def _close(self, pending: PendingService) -> None:
        """Forget a service whose end must be folded by now; if the end was lost, the service is still ready."""
        services = self._pending[pending.job]
        del services[pending.service]
        if not services:
            del self._pending[pending.job]
        self.enqueue(pending.job)

    async def _attempt(self, pending: PendingService) -> None:
        """Run a service once; it waits no longer if this was its end."""
        try:
            accepted = self.store_of(pending.job).accepted(pending.job)
            if accepted is not None:
                run = JobRun(
                    pending.job,
                    pending.service,
                    accepted,
                    self.store_of,
                    self.source,
                    self.emit,
                    self.spool,
                    self.lives.name_run(),
                )
                try:
                    await self._run_counted(run)
                finally:
                    run.close()
            pending.since = None
        except Unavailable as error:
            log.warning(
                "job.retry",
                job=keys.shown(pending.job),
                service=pending.service,
                error=str(error),
                failures=pending.failures + 1,
            )

    async def _run_counted(self, run: JobRun) -> None:
        """Run a service. The log counts runs whose end nobody saw, and too many of them fail the service."""
        if (run.job, run.service) not in self._suspected:
            await self._run_service(run)
            return
        async with self._turn:
            head = self.store_of(run.job).head(run.job)
            entry = None if head is None else head.entry(run.service)
            if entry is None:
                await self._run_service(run)
                return
            deaths, lives = self.lives.suspected(entry.begun, entry.begun_by)
            if killed := self.lives.was_killed(entry.run):
                deaths, lives = max(0, deaths - 1), lives[:-1]
            await self._run_service(run, deaths, lives, entry.kills + killed)

    async def _run_service(self, run: JobRun, deaths: int = 0, lives: tuple[str, ...] = (), kills: int = 0) -> None:
        """Run a service of which `deaths` processes may have died; `kills` were ended from outside."""
        stopped = Stopped(run.service, run.run, deaths, lives)
        try:
            await run.append(Started(run.service, run.run, deaths + 1, kills, (*lives, self.lives.this)))
            if deaths >= DEATHS:
                raise ServiceFault(DEADLY)
            if kills >= KILLS:
                raise ServiceFault(KILLED)
            try:
                summary = await self.services[run.service].perform(run)
            finally:
                self._suspected.discard((run.job, run.service))
            await run.append(
                Finished(run.service, run.run, run.count, None, summary.audio_ms, summary.model, summary.warnings)
            )
        except (Unavailable, asyncio.CancelledError):
            # The process lives, or was asked to end.
            self.note(run.job, stopped)
            raise
        except Exception as error:
            if isinstance(error, EarshotError):
                log.warning("job.service_failed", job=keys.shown(run.job), service=run.service, error=_message(error))
            else:
                log.error(
                    "job.service_failed",
                    job=keys.shown(run.job),
                    service=run.service,
                    error=repr(error),
                    exc_info=error,
                )
            await run.append(Finished(run.service, run.run, run.count, _message(error)))


def _message(error: Exception) -> str:
    """Return the error of the entry: the text may be an engine's, so it is cut and made encodable."""
    return (str(error) or type(error).__name__)[:LONGEST_ERROR].encode("utf-8", "replace").decode()
