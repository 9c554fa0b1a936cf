"""Runs the services of unfinished jobs, each in a task of its own; the rows say what there is to do.

The fold says which jobs have work (`enqueue`), and their heads say which services are ready. Of one service as many
runs go on at a time as it allows, those of the oldest jobs first. Nothing here holds a partition.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from streams.folding import retry
from streams.jobs.run_context import Emit, JobRun, PartReader, StoreOf
from streams.jobs.spool import Spool
from streams.services.service import JobService, RunSummary, ServiceRun
from topics import keys
from topics.errors import EarshotError, ServiceFault, Unavailable
from topics.jobs.options import Service
from topics.jobs.records import Finished, Started

log = structlog.get_logger(__name__)

#: An end that was appended and is not folded after this long was lost to another run: the head is asked again.
FOLDED_SECONDS: Final = 60.0
#: Runs that were cancelled get this long to clean up when the node stops.
STOP_SECONDS: Final = 10.0
LONGEST_ERROR: Final = 1000


class PendingService(msgspec.Struct, eq=False):
    """One service of a job, from the moment that it is ready until its end is folded."""

    job: str
    service: Service
    #: Log time (ms) of the acceptance.
    created: int
    #: Since when it waits (monotonic seconds), None once it has ended.
    since: float | None
    failures: int = 0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None


class MissingService:
    """Stands for a service that this deployment lacks: every run fails."""

    limit = 1

    def __init__(self, service: Service) -> None:
        self.service = service

    async def perform(self, work: ServiceRun) -> RunSummary:
        """Fail."""
        raise ServiceFault(f"{self.service} is not available in this deployment")


class Runner:
    """Runs the services of all jobs of a node."""

    def __init__(
        self,
        services: Mapping[Service, JobService],
        store_of: StoreOf,
        source: PartReader,
        emit: Emit,
        spool: Path,
    ) -> None:
        """Begin with nothing to do; `spool` is a directory of this process alone, for the audio of what runs."""
        self.services: dict[Service, JobService] = {
            service: services.get(service) or MissingService(service) for service in Service
        }
        self.store_of = store_of
        self.source = source
        self.emit = emit
        self.spool = Spool(spool)
        self._pending: dict[str, dict[Service, PendingService]] = {}
        #: (created, job) of what waits for a place.
        self._waiting: dict[Service, list[tuple[int, str]]] = {service: [] for service in Service}
        self._running: Counter[Service] = Counter()
        #: Those of forgotten jobs too, until they have ended.
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: Callable[[asyncio.Task[None]], None] | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Begin to run; `ended` is called with each task that ends."""
        self.spool.clear()
        self._ended = ended
        for service in Service:
            self._fill(service)

    async def stop(self) -> None:
        """Cancel everything; what has not ended is found again in the rows."""
        self._ended = None
        self.forget_all()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)

    def enqueue(self, job: str) -> None:
        """Services of a job may have become ready."""
        try:
            head = self.store_of(job).head(job)
        except Unavailable:
            # The partition is elsewhere; should it come back, the job is found in the rows.
            return
        if head is None or not (ready := head.ready):
            return
        services = self._pending.setdefault(job, {})
        for service in ready:
            if service not in services:
                services[service] = PendingService(job, service, head.created, time.monotonic())
                self._queue(services[service])

    def forget(self, job: str) -> None:
        """The job is gone: cancel its runs."""
        for pending in self._pending.pop(job, {}).values():
            if pending.timer is not None:
                pending.timer.cancel()
            elif pending.task is not None:
                pending.task.cancel()
            elif (place := (pending.created, job)) in (waiting := self._waiting[pending.service]):
                waiting.remove(place)
                heapq.heapify(waiting)
        self.spool.drop(job)

    def jobs(self) -> list[str]:
        """Return the jobs with services that run, or wait for it."""
        return list(self._pending)

    def forget_all(self) -> None:
        """Cancel all runs."""
        for waiting in self._waiting.values():
            waiting.clear()
        for job in list(self._pending):
            self.forget(job)

    def lag(self) -> float:
        """Return for how many seconds the service that has been ready longest has not begun, or not begun again."""
        since = [
            pending.since
            for services in self._pending.values()
            for pending in services.values()
            if pending.task is None and pending.since is not None
        ]
        return time.monotonic() - min(since) if since else 0.0

    # --- runs -------------------------------------------------------------------------------------------------------

    def _queue(self, pending: PendingService) -> None:
        pending.timer = None
        heapq.heappush(self._waiting[pending.service], (pending.created, pending.job))
        self._fill(pending.service)

    def _fill(self, service: Service) -> None:
        """Begin runs of a service while there are places."""
        waiting = self._waiting[service]
        while self._ended is not None and waiting and self._running[service] < self.services[service].limit:
            _, job = heapq.heappop(waiting)
            pending = self._pending[job][service]
            self._running[service] += 1
            pending.task = asyncio.create_task(self._attempt(pending), name=f"job-{keys.shown(job)}-{service}")
            self._tasks.add(pending.task)
            # Not at the task's own end: one that is cancelled before it begins has none.
            pending.task.add_done_callback(partial(self._end_run, pending))
            pending.task.add_done_callback(self._ended)

    def _end_run(self, pending: PendingService, task: asyncio.Task[None]) -> None:
        """Give the place of a run that has ended, in whatever way, to the next one."""
        self._tasks.discard(task)
        self._running[pending.service] -= 1
        self._fill(pending.service)
        pending.task = None
        if self._pending.get(pending.job, {}).get(pending.service) is not pending:
            return
        clock = asyncio.get_running_loop()
        if pending.since is None:
            pending.timer = clock.call_later(FOLDED_SECONDS, self._close, pending)
        else:
            pending.failures += 1
            pending.timer = clock.call_later(retry.pause(pending.failures), self._queue, pending)

    def _close(self, pending: PendingService) -> None:
        """Forget a service whose end must be folded by now; if the end was lost, the service is ready still."""
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
                run = JobRun(pending.job, pending.service, accepted, self.store_of, self.source, self.emit, self.spool)
                try:
                    await self._run_service(run)
                finally:
                    run.close()
            pending.since = None
        except Unavailable as error:
            log.warning(
                "job.retry",
                job=pending.job[:8],
                service=pending.service,
                error=str(error),
                failures=pending.failures + 1,
            )

    async def _run_service(self, run: JobRun) -> None:
        try:
            await run.append(Started(run.service, run.run))
            summary = await self.services[run.service].perform(run)
            await run.append(
                Finished(run.service, run.run, run.count, None, summary.audio_ms, summary.model, summary.warnings)
            )
        except Unavailable:
            raise
        except Exception as error:
            if isinstance(error, EarshotError):
                log.warning("job.service_failed", job=run.job[:8], service=run.service, error=_message(error))
            else:
                log.error("job.service_failed", job=run.job[:8], service=run.service, error=repr(error), exc_info=error)
            await run.append(Finished(run.service, run.run, run.count, _message(error)))


def _message(error: Exception) -> str:
    """Return the error of the entry: the text may be an engine's, so it is cut and made encodable."""
    return (str(error) or type(error).__name__)[:LONGEST_ERROR].encode("utf-8", "replace").decode()
