"""Runs the services of unfinished jobs; the rows hold the work to do.

The fold reports jobs with work (`enqueue`), and their heads hold which services are ready. An agent takes those with a
free place and runs each to its end (`streams/agents.py`). Nothing here holds a partition.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

import mode
import msgspec
import structlog
from faust import App

from streams.channel import WorkChannel
from streams.folding import retry
from streams.folding.lives import Lives
from streams.jobs.run_context import Emit, JobRun, Note, StoreOf
from streams.jobs.spool import Spool
from streams.log import RecordReader
from streams.processes.deaths import Deaths
from streams.services.service import JobService
from topics import keys, traces
from topics.errors import EarshotError, NotOwned, ServiceFault, Unavailable
from topics.jobs.options import Service
from topics.jobs.records import Finished, Started, Stopped
from topics.turns import Turns

log = structlog.get_logger(__name__)

#: If an appended end is not folded after this time, another run superseded it; check the head again.
FOLDED_SECONDS: Final = 60.0
#: The longest pause between attempts; each attempt is visible to readers of the job.
LONGEST_PAUSE_SECONDS: Final = 30.0
#: Time for cancelled runs to clean up when the node stops.
STOP_SECONDS: Final = 10.0
LONGEST_ERROR: Final = 1000


class PendingService(msgspec.Struct, eq=False):
    """One service of a job, from when it is ready until its end is folded."""

    job: str
    service: Service
    project: str
    #: Log time (ms) of the acceptance.
    created: int
    #: Since when it waits (monotonic seconds); None once it has ended.
    since: float | None
    failures: int = 0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None


class ReadyServices(WorkChannel[PendingService]):
    """Queues services of jobs for a free place. Loop only.

    Each service has a maximum number of concurrent runs. Projects take turns, each with its oldest job first. So that a
    project without a run does not wait for others' long runs, it may use one place beyond the maximum.
    """

    def __init__(self, app: App, limits: Mapping[Service, int]) -> None:
        """`limits` holds the maximum number of concurrent runs of each service."""
        super().__init__(app)
        self._limits = limits
        self._waiting: dict[Service, Turns[PendingService]] = {service: Turns() for service in limits}
        #: Number of current runs, by project.
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
        """Return the next run, or None if no place is free; call `done` for it afterwards."""
        for service, waiting in self._waiting.items():
            running = self._running[service]
            if not waiting or (places := self._limits[service] - running.total()) < 0:
                continue
            if (pending := waiting.take() if places else waiting.take(passed_over=running)) is not None:
                running[pending.project] += 1
                return pending
        return None

    def done(self, pending: PendingService) -> None:
        """Free the place of a run that has ended in any way."""
        running = self._running[pending.service]
        running[pending.project] -= 1
        if not running[pending.project]:
            del running[pending.project]
        self.wake()


class Runner(mode.Service):  # type: ignore[misc]
    """Runs the services of all jobs on a node. Loop only."""

    mundane_level = "debug"

    def __init__(
        self,
        app: App,
        services: Mapping[Service, JobService],
        store_of: StoreOf,
        reader: RecordReader,
        emit: Emit,
        note: Note,
        spool: Spool,
        lives: Lives,
    ) -> None:
        """Begin without work; `spool` keeps the audio of runs."""
        super().__init__()
        self.services = services
        self.store_of = store_of
        self.reader = reader
        self.emit = emit
        self.note = note
        self.lives = lives
        self.spool = spool
        #: Services that were running when their process died.
        self._suspected: set[tuple[str, Service]] = set()
        #: Held by the suspected service that runs: together, an innocent one would be counted with the guilty.
        self._turn = asyncio.Lock()
        self._pending: dict[str, dict[Service, PendingService]] = {}
        #: Runs of a service that this deployment lacks fail, one at a time.
        self._limits = {service: services[service].limit if service in services else 1 for service in Service}
        self.ready = ReadyServices(app, self._limits)
        #: Includes runs of forgotten jobs until they end.
        self._tasks: set[asyncio.Task[None]] = set()
        self._once = self._attempt if traces.tracer is None else traces.tracer.running(self._attempt)

    # --- life -------------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        self.spool.clear()

    async def on_stop(self) -> None:
        """Cancel all runs and start no more. The rows still hold all unfinished work."""
        for job in list(self._pending):
            self.forget(job)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)

    def suspect(self, job: str) -> None:
        """Suspect the running services of a job found unfinished: one may have crashed its process."""
        if (head := self.store_of(job).head(job)) is not None:
            self._suspected.update((job, entry.service) for entry in head.entries if entry.begun_by and not entry.ended)

    def enqueue(self, job: str) -> None:
        """Queue the services of a job that have become ready."""
        try:
            store = self.store_of(job)
        except NotOwned:
            return  # If the partition comes back, the rows still hold the job.
        except Unavailable:
            # This node may still own the job: it has briefly lost contact with the others.
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
        """Cancel the runs of a deleted job."""
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
        """Return the jobs with services that run or wait."""
        return list(self._pending)

    def load(self) -> tuple[int, int]:
        """Return how many services of jobs are ready or running, and how many may run at the same time."""
        pending = (one for services in self._pending.values() for one in services.values() if one.since is not None)
        return sum(1 for _ in pending), sum(self._limits.values())

    def lag(self) -> float:
        """Return the longest time in seconds that a ready service has been waiting to start or restart."""
        since = [
            pending.since
            for services in self._pending.values()
            for pending in services.values()
            if pending.task is None and pending.since is not None
        ]
        return time.monotonic() - min(since) if since else 0.0

    # --- runs -------------------------------------------------------------------------------------------------------

    async def run(self, pending: PendingService) -> None:
        """Run a service taken from `ready`; return when the run has ended or its job is gone.

        Raises:
            BaseException: a bug in this process, which must end it.
        """
        name = f"job-{keys.shown(pending.job)}-{pending.service}"
        # A separate task, so that `forget` can cancel it without the actor that waits for it.
        pending.task = task = asyncio.create_task(self._once(pending), name=name)
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
        """Drop a service whose end should be folded by now; if the end was lost, the service is still ready."""
        services = self._pending[pending.job]
        del services[pending.service]
        if not services:
            del self._pending[pending.job]
        self.enqueue(pending.job)

    async def _attempt(self, pending: PendingService) -> None:
        """Run a service once; it stops waiting if the run reached its end."""
        try:
            accepted = self.store_of(pending.job).accepted(pending.job)
            if accepted is not None:
                run = JobRun(
                    pending.job,
                    pending.service,
                    accepted,
                    self.store_of,
                    self.reader,
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
        """Run a service, counting earlier runs that died without an end; too many of them fail the service."""
        if (run.job, run.service) not in self._suspected:
            await self._run_service(run)
            return
        async with self._turn:
            head = self.store_of(run.job).head(run.job)
            entry = None if head is None else head.entry(run.service)
            if entry is None:
                await self._run_service(run)
                return
            lives = self.lives.suspected(entry.begun_by)
            if killed := self.lives.was_killed(entry.run):
                lives = lives[:-1]
            await self._run_service(run, lives, entry.kills + killed)

    async def _run_service(self, run: JobRun, lives: tuple[str, ...] = (), kills: int = 0) -> None:
        """Run a service after the suspected crashes of `lives` and `kills` from outside."""
        try:
            await self._run_to_end(run, lives, kills)
        except (Unavailable, asyncio.CancelledError):
            # The process is alive, or was asked to stop.
            self.note(run.job, Stopped(run.service, run.run, lives))
            raise

    async def _run_to_end(self, run: JobRun, lives: tuple[str, ...], kills: int) -> None:
        try:
            await run.append(Started(run.service, run.run, (*lives, self.lives.this), kills))
            if (sentence := Deaths(len(lives), kills).verdict) is not None:
                raise ServiceFault(sentence)
            try:
                if run.service not in self.services:
                    raise ServiceFault(f"{run.service} is not available in this deployment")
                summary = await self.services[run.service].perform(run)
            finally:
                self._suspected.discard((run.job, run.service))
            measured = summary.audio_ms, summary.model, summary.warnings, summary.silence_ms
            await run.append(Finished(run.service, run.run, run.count, None, *measured))
        except Unavailable:
            raise
        except Exception as error:
            if traces.tracer is not None:
                traces.tracer.failed(error)
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
    """Return the message for the entry; it may come from an engine, so it is cut and made encodable."""
    return (str(error) or type(error).__name__)[:LONGEST_ERROR].encode("utf-8", "replace").decode()
