"""A runner whose results are folded at once, and scripted services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

from streams.agents import NodeApp, run_services
from streams.folding.awaited_verdicts import Verdicts
from streams.folding.batch import fold_batch
from streams.folding.fold import Changes
from streams.folding.lives import Lives
from streams.jobs.job_intake import JobIntake
from streams.jobs.job_results import JobResults
from streams.jobs.job_store import JobStore
from streams.jobs.service_runner import Runner
from streams.jobs.spool import Spool
from streams.services.service import RunSummary, ServiceRun
from tests.unit.streams.agents import Agents
from tests.unit.streams.jobs.world import KEEP_MS
from tests.unit.streams.sessions.rows import MemoryPartition, delivered
from tests.waiting import until
from topics import record_codec
from topics.catalog import TopicPartition
from topics.errors import NotOwned
from topics.jobs.options import Options, Service
from topics.jobs.records import Accepted, Finished, JobResult, Part, Portion, Source, Started
from topics.jobs.rules import Entry

ALL = Options(True, True, True, True, translation=True)
SOUND = Options(sound_event_detection=True)
AUDIO = b"audio"
PART = Part("c", "u", 0, AUDIO)

Script = Callable[[ServiceRun], Awaitable[None]]


def name(number: int) -> str:
    return str(number).rjust(24, "J")


async def nothing(work: ServiceRun) -> None:
    """Finish at once without results."""


class ScriptedService:
    """Follows a script of runs, repeating its last entry."""

    def __init__(self, *scripts: Script, limit: int = 2) -> None:
        self.scripts = list(scripts) or [nothing]
        self.limit = limit
        self.works: list[ServiceRun] = []
        self.at_work = self.most_at_work = 0

    async def perform(self, work: ServiceRun) -> RunSummary:
        self.works.append(work)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await script(work)
        finally:
            self.at_work -= 1
        return RunSummary("model", 1000, ("careful",))

    @property
    def jobs(self) -> list[str]:
        return [work.job for work in self.works]


class Desk:
    """The node around a runner, with one partition and a log of results; created inside a running loop."""

    def __init__(self, spool: Path, services: dict[Service, ScriptedService], lives: Lives | None = None) -> None:
        self.partition = MemoryPartition()
        self.store = JobStore(self.partition)
        self.intake = JobIntake(Verdicts(), KEEP_MS, self._announce)
        self.job_results = JobResults(self._announce)
        self.commands = 0
        self.results: list[tuple[str, JobResult]] = []
        self.noted: list[tuple[str, JobResult]] = []
        #: Raised once each, before a result is accepted (None accepts one), and before audio is read.
        self.refusals: list[Exception | None] = []
        self.faults: list[Exception] = []
        #: The partition is elsewhere; results wait for `fold`.
        self.elsewhere = self.slow = False
        self.unfolded: list[tuple[str, JobResult]] = []
        app = NodeApp()
        self.runner = Runner(
            app, services, self.store_of, self, self.emit, self.note, Spool(spool, 0), lives or Lives()
        )
        run_services(app, self.runner)
        self.agents = Agents(app, self.runner)

    async def __aenter__(self) -> Desk:
        await self.agents.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.agents.stop()
        assert self.agents.crashes == []

    def store_of(self, job: str) -> JobStore:
        if self.elsewhere:
            raise NotOwned("the partition is elsewhere")
        return self.store

    async def values(self, tp: TopicPartition, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        if self.faults:
            raise self.faults.pop(0)
        for _ in offsets:
            yield record_codec.encode(PART)

    def accept(self, job: str, options: Options = SOUND, at: int = 0, project: str = "p") -> None:
        """Fold the commands of a job, accepted at `at`."""
        source = Source("audio/wav", "wav", len(AUDIO), 8000, 1)
        for command in (PART, Accepted("c", "u", 1, project, "o", options, source, "model", b"")):
            self.commands += 1
            assert fold_batch(self.store, [delivered(self.commands, job, command, at)], self.intake) == 1

    def remove(self, job: str) -> None:
        """Forget a job, as if it had never been there."""
        for key in [key for key in self.partition.rows if key.startswith(self.store.prefix(job))]:
            del self.partition.rows[key]
        self.store.remember(job, None)
        self.runner.forget(job)

    def _announce(self, changes: Changes) -> None:
        for job in changes.work:
            self.runner.enqueue(job)

    async def emit(self, job: str, result: JobResult) -> None:
        await asyncio.sleep(0)
        if self.refusals and (refusal := self.refusals.pop(0)) is not None:
            raise refusal
        self.results.append((job, result))
        self._append(job, result)

    def note(self, job: str, result: JobResult) -> None:
        """Fold a result that nothing waits for."""
        self.noted.append((job, result))
        self._append(job, result)

    def _append(self, job: str, result: JobResult) -> None:
        self.unfolded.append((job, result))
        if not self.slow:
            self.fold()

    def fold(self) -> None:
        """Fold everything appended."""
        while self.unfolded:
            job, result = self.unfolded.pop(0)
            assert fold_batch(self.store, [delivered(0, job, result)], self.job_results) == 1

    def entry(self, job: str, service: Service = Service.SOUND) -> Entry:
        head = self.store.head(job)
        entry = None if head is None else head.entry(service)
        assert entry is not None
        return entry

    async def ends(self, *jobs: str) -> None:
        await until(lambda: not any((head := self.store.head(job)) and head.unfinished for job in jobs))

    def of(self, kind: type[Started | Portion | Finished], job: str) -> list[JobResult]:
        return [result for other, result in self.results if other == job and isinstance(result, kind)]
