"""The job side of a node: its agents, the runner and the biller, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from streams.folding.agent import Changes
from streams.folding.followers import Followers
from streams.folding.references import References
from streams.jobs.biller import Biller
from streams.jobs.intake import JobIntake
from streams.jobs.results import JobResults
from streams.jobs.runner import Runner
from streams.jobs.source import PartSource
from streams.node.outbox import Outbox
from streams.node.owned import Owned
from streams.services.service import JobService
from topics.catalog import JOB_COMMANDS, JOB_RESULTS
from topics.jobs.options import Service
from topics.jobs.records import JobResult, Overdue, Started
from topics.jobs.rules import JobState
from topics.ports.ledger import Ledger


class JobSide:
    """What a node has for its jobs."""

    def __init__(
        self,
        owned: Owned,
        outbox: Outbox,
        followers: Followers,
        source: PartSource,
        services: Mapping[Service, JobService],
        ledger: Ledger | None,
        keep_ms: int,
        spool: Path,
    ) -> None:
        self.owned = owned
        self.outbox = outbox
        self.followers = followers
        self.keep_ms = keep_ms
        self.references = References()
        self.intake = JobIntake(outbox.verdicts, self.references, keep_ms, self._announce)
        self.results = JobResults(self.references, self._announce)
        self.runner = Runner(services, owned.serving_job, source, self._emit, spool)
        self.biller = Biller(owned.serving_job, ledger, self._emit)
        #: Jobs that were found to have work, or something unbilled, before this node serves.
        self._early = Changes()

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start the runner and the biller; `ended` is called with each task of theirs that ends."""
        self.runner.start(ended)
        self.biller.start(ended)

    async def stop(self) -> None:
        """Stop; what is not done is found again in the rows."""
        await self.runner.stop()
        await self.biller.stop()

    def lose(self) -> None:
        """The partitions are being taken away."""
        self._early = Changes()
        self.references.clear()
        self.runner.forget_all()
        self.biller.forget_all()

    async def survey(self, partition: int) -> None:
        """Find in the rows what is to be done and billed, and which parts must stay in the log."""
        store = self.owned.job_store(partition)
        for job, head in store.all_heads():
            if head is None or head.state is JobState.REMOVED:
                store.tidy(job, head)
            if head is None:
                continue
            if head.needs_audio:
                for row in store.audio(job, 0, head.parts):
                    self.references.add(partition, row.offset)
            if head.unfinished:
                self._early.work[job] = None
            if head.unbilled:
                self._early.unbilled[job] = None
            await asyncio.sleep(0)

    def begin(self) -> int:
        """The node serves: take what was found before; return how many jobs are unfinished."""
        early, self._early = self._early, Changes()
        self._take_work(early.work)
        self._bill(early.unbilled)
        return len(early.work)

    async def overdue(self, job: str, due: int) -> None:
        """Append the command that removes a job whose index entry is due."""
        await self.outbox.append(JOB_COMMANDS, job, Overdue("sweep", self.keep_ms, due), bounded=False)

    def _announce(self, changes: Changes) -> None:
        for job in changes.gone:
            self.runner.forget(job)
        self.followers.notify(changes.changed)
        if self.owned.ready:
            self._bill(changes.unbilled)
        else:
            self._early.unbilled.update(changes.unbilled)
        self._take_work(changes.work)

    def _take_work(self, jobs: Iterable[str]) -> None:
        if not self.owned.ready:
            self._early.work.update(dict.fromkeys(jobs))
            return
        for job in jobs:
            self.runner.enqueue(job)

    def _bill(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.biller.enqueue(job)

    async def _emit(self, job: str, result: JobResult) -> None:
        await self.outbox.emit(JOB_RESULTS, job, result, first=isinstance(result, Started))
