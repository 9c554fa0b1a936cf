"""What a node does for its jobs: two agents that fold, the runner and the biller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from streams.folding.agent import Changes
from streams.folding.followers import Followers
from streams.jobs.biller import Biller
from streams.jobs.intake import JobIntake
from streams.jobs.results import JobResults
from streams.jobs.service_runner import Runner
from streams.jobs.source import PartSource
from streams.jobs.store import JobStore
from streams.log import RecordReader
from streams.node.agents import FoldingAgents
from streams.node.options import NodeOptions
from streams.node.partitions import OwnedPartitions
from streams.node.sender import RecordSender
from streams.node.workload import Workload
from streams.services.service import JobService
from topics.catalog import JOB_COMMANDS, JOB_RESULTS
from topics.jobs.options import Service
from topics.jobs.records import JobResult, Overdue, Started
from topics.jobs.rules import JobState
from topics.ports.ledger import Ledger


class JobWorkload(Workload[JobStore]):
    """Intake, results, runner and biller of the jobs of a node."""

    commands = JOB_COMMANDS

    def __init__(
        self,
        options: NodeOptions,
        partitions: OwnedPartitions,
        sender: RecordSender,
        followers: Followers,
        agents: FoldingAgents,
        reader: RecordReader,
        services: Mapping[Service, JobService],
        ledger: Ledger | None,
    ) -> None:
        super().__init__(partitions, partitions.jobs, sender, followers)
        self._keep_ms = options.job_keep_ms
        spool = options.directory / "spool"
        self.runner = Runner(services, self.stores.serving, PartSource(reader), self._emit, spool)
        self.biller = Biller(self.stores.serving, ledger, self._emit)
        intake = JobIntake(sender.verdicts, self.references, self._keep_ms, self.announce)
        results = JobResults(self.references, self.announce)
        agents.add(JOB_COMMANDS, "job-intake", intake, self.stores.of_partition)
        agents.add(JOB_RESULTS, "job-results", results, self.stores.of_partition)

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start the runner and the biller; `ended` is called with each task of theirs that ends."""
        self.runner.start(ended)
        self.biller.start(ended)

    async def survey(self, partition: int) -> None:
        """Find in the rows what is to be done and billed, and which parts must stay in the log."""
        store = self.stores.of_partition(partition)
        for job, head in store.all_heads():
            if head is None or head.state is JobState.REMOVED:
                store.tidy(job, head)
            if head is None:
                continue
            if head.needs_audio:
                for row in store.audio(job, 0, head.parts):
                    self.references.add(partition, row.offset)
            if head.unfinished:
                self.early.work[job] = None
            if head.unbilled:
                self.early.unbilled[job] = None
            await asyncio.sleep(0)

    def take_work(self, changes: Changes) -> None:
        """Queue jobs for the biller and the runner."""
        for job in changes.unbilled:
            self.biller.enqueue(job)
        for job in changes.work:
            self.runner.enqueue(job)

    def cancel(self, id: str) -> None:
        """Cancel the runs of a job that was removed."""
        self.runner.forget(id)

    def cancel_all(self) -> None:
        """Cancel all runs and bills."""
        self.runner.forget_all()
        self.biller.forget_all()

    async def expire(self, id: str, due: int) -> None:
        """Append the command that removes a job whose time is over."""
        await self.sender.append(JOB_COMMANDS, id, Overdue("sweep", self._keep_ms, due), bounded=False)

    async def stop(self) -> None:
        """Stop the runner and the biller."""
        await self.runner.stop()
        await self.biller.stop()

    async def _emit(self, job: str, result: JobResult) -> None:
        await self.sender.emit(JOB_RESULTS, job, result, first=isinstance(result, Started))
