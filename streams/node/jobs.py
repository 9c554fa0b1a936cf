"""The work of a node for its jobs: two folds, the runner and the biller."""

from collections.abc import Iterable, Mapping
from functools import partial

import mode
from faust import App

from streams.audio.decode import OpenFile
from streams.folding.fold import Changes
from streams.folding.followers import Followers
from streams.jobs.job_biller import JobBiller
from streams.jobs.job_intake import JobIntake
from streams.jobs.job_results import JobResults
from streams.jobs.job_store import JobStore
from streams.jobs.pictures import JobPictures
from streams.jobs.recording import JobRecordings
from streams.jobs.service_runner import Runner
from streams.jobs.spool import Spool
from streams.log import RecordReader
from streams.node.options import NodeOptions
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.sender import RecordSender
from streams.node.workload import Workload
from streams.services.service import JobService
from streams.sessions.listeners import Listeners
from topics.catalog import JOB_COMMANDS, JOB_RESULTS
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.jobs.records import JobResult, Overdue, Removed
from topics.jobs.rules import JobHead
from topics.ports.ledger import Ledger
from topics.times import DAY_MS


class JobWorkload(Workload[JobStore]):
    """Connects the intake, results, runner and biller of a node's jobs. Loop only."""

    commands = JOB_COMMANDS

    def __init__(
        self,
        app: App,
        options: NodeOptions,
        owners: Owners,
        sender: RecordSender,
        followers: Followers,
        reader: RecordReader,
        services: Mapping[Service, JobService],
        ledger: Ledger | None,
        open_file: OpenFile,
        listeners: Listeners,
    ) -> None:
        # A job waits for others as long as it must. If it stands still for longer than it would be kept, it goes.
        super().__init__(owners, sender, followers, options.job_keep_ms, max(options.job_keep_ms, DAY_MS))
        self._listeners = listeners
        spool = Spool(options.directory / "spool", options.free_bytes)
        self.runner = Runner(
            app, services, self.serving, reader, self._emit, partial(sender.note, JOB_RESULTS), spool, options.lives
        )
        self.recordings = JobRecordings(self.for_reading, reader, spool)
        drawn = JobRecordings(self.serving, reader, spool)
        pictures = options.directory / "pictures"
        self.pictures = JobPictures(drawn, open_file, pictures, spool.check_room, options.picture_bytes)
        self.biller = JobBiller(app, self.serving, ledger, self._emit)
        self.folds = {
            JOB_COMMANDS: JobIntake(sender.verdicts, options.job_keep_ms, self.announce),
            JOB_RESULTS: JobResults(self.announce),
        }

    def on_init_dependencies(self) -> Iterable[mode.Service]:
        return [self.runner]

    async def on_start(self) -> None:
        """Remove pictures left by an earlier process."""
        self.pictures.start()

    async def on_stop(self) -> None:
        await self.pictures.stop()

    def announce(self, changes: Changes) -> None:
        super().announce(changes)
        self._listeners.note_jobs(changes.changed, self.serving)

    def store(self, owner: PartitionOwner) -> JobStore:
        return owner.jobs

    def needed_audio(self, head: JobHead) -> range:
        return head.audio if head.needs_audio else range(0)

    def note_pending(self, id: str, head: JobHead, early: Changes) -> None:
        if head.unfinished:
            early.work[id] = None
        if head.unbilled:
            early.unbilled[id] = None

    def suspect(self, id: str) -> None:
        self.runner.suspect(id)

    def take_work(self, changes: Changes) -> None:
        self.biller.ready.add(changes.unbilled)
        for job in changes.work:
            self.runner.enqueue(job)

    def cancel(self, id: str) -> None:
        self.runner.forget(id)
        self.pictures.drop(id)

    def busy(self) -> Iterable[str]:
        return self.runner.jobs()

    async def sweep(self) -> None:
        self.pictures.drop_unless(self._keeps_audio)
        await super().sweep()

    def _keeps_audio(self, job: str) -> bool:
        try:
            store = self.serving(job)
            head = store.head(job) if store.readable(job) else None
        except Unavailable:
            return False
        return head is not None and head.can_be_heard

    async def remove(self, id: str) -> None:
        await self.sender.submit(JOB_COMMANDS, id, Removed(f"remove {id}"))

    async def expire(self, id: str, due: int, seen: int) -> None:
        await self.sender.append(JOB_COMMANDS, id, Overdue("sweep", seen, due))

    async def give_up(self, id: str, due: int, seen: int) -> None:
        await self.expire(id, due, seen)

    async def _emit(self, job: str, result: JobResult) -> None:
        await self.sender.append(JOB_RESULTS, job, result)
