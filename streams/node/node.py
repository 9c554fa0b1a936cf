"""A node: the Faust application, the agents and the analyser put together behind the ports of the edge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import structlog

from streams.driver.application import Application, ApplicationOptions
from streams.folding.agent import Agent, Changes
from streams.folding.batch import fold_batch
from streams.folding.followers import Follower, Followers
from streams.folding.record import LogRecord
from streams.folding.references import References
from streams.folding.store import H, HeadStore
from streams.folding.sweeper import sweep
from streams.jobs.source import PartSource
from streams.models.loaded_models import LoadedModels
from streams.node.backend import Backend
from streams.node.desk import Desk
from streams.node.jobs import JobSide
from streams.node.outbox import Outbox
from streams.node.owned import Owned
from streams.services.service import JobService
from streams.sessions.analyser import Analyser
from streams.sessions.audio import AudioCache, AudioSource
from streams.sessions.intake import SessionIntake
from streams.sessions.results import SessionResults
from topics import codec, keys
from topics.catalog import COMMANDS, JOB_COMMANDS, JOB_RESULTS, PARKED, RESULTS, TopicPartition
from topics.folding import Verdict
from topics.jobs.options import Service
from topics.ports.ledger import Ledger
from topics.ports.sessions import SessionView, Windows
from topics.records import Parked
from topics.sessions.records import Expired, Failed, SessionCommand, SessionResult
from topics.sessions.rows import BLOCK_WINDOWS

log = structlog.get_logger(__name__)

STUCK_SECONDS: Final = 60.0
AUDIO_CACHE_BYTES: Final = 64 * 1024 * 1024


class NodeOptions(msgspec.Struct, frozen=True):
    """What a node needs to know of its deployment."""

    directory: Path
    partitions: int
    record_limit: int
    idle_seconds: float = 3600.0
    queue_bytes: int = 64 * 1024 * 1024
    workers: int = 1
    #: Where other nodes reach this one.
    url: str = "http://127.0.0.1:8000"
    #: Seconds between looks at the expiry index.
    sweep_seconds: float = 30.0
    #: A job is removed so many milliseconds after its acceptance.
    job_keep_ms: int = 30 * 24 * 3600 * 1000


class Node:
    """Implements the ports `Sessions` and `Health` of `topics.ports`; `jobs` implements `Jobs`.

    `services` run the services of jobs; without a `ledger` what they cost is written nowhere.
    """

    def __init__(
        self,
        options: NodeOptions,
        models: LoadedModels,
        backend: Backend,
        on_failure: Callable[[], None],
        services: Mapping[Service, JobService] = MappingProxyType({}),
        ledger: Ledger | None = None,
    ) -> None:
        self.options = options
        self.models = models
        self.backend = backend
        self.failure: str | None = None
        self.parked = 0
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._catching_up: asyncio.Task[None] | None = None
        #: Sessions that were found to have work before this node serves.
        self._early: dict[str, None] = {}
        self.followers = Followers()
        self.references = References()
        self.application = Application(
            ApplicationOptions(
                broker=backend.broker,
                directory=options.directory,
                partitions=options.partitions,
                record_limit=options.record_limit,
                queue_bytes=options.queue_bytes,
                instance=_instance(options.directory),
                url=options.url,
            ),
            self._failed,
            backend.embedded_log,
        )
        self.owned = Owned(self.application, options.partitions)
        self._outbox = Outbox(self.application, options.partitions, ordered=backend.embedded_log is not None)
        self.verdicts = self._outbox.verdicts
        #: Set once, when this node first serves.
        self.served = asyncio.Event()
        cache = AudioCache(AUDIO_CACHE_BYTES)
        self._idle_ms = int(options.idle_seconds * 1000)
        self.intake = SessionIntake(self.verdicts, self.references, self._idle_ms, self._announce, cache)
        self.results = SessionResults(self.references, self._announce, self.models.tags)
        self.analyser = Analyser(
            models,
            AudioSource(cache, backend.reader),
            self.owned.serving,
            self._emit,
            options.workers,
            options.directory,
        )
        self.application.on_rebalance(self._lost, self._regained)
        self._consume(COMMANDS, "intake", self.intake, self.owned.store)
        self._consume(RESULTS, "results", self.results, self.owned.store)
        self.jobs = Desk(self.owned, self._outbox, self.followers, self.owner, self.model)
        self.job_side = JobSide(
            self.owned,
            self._outbox,
            self.followers,
            PartSource(backend.part_reader),
            services,
            ledger,
            options.job_keep_ms,
            options.directory / "spool",
        )
        self._consume(JOB_COMMANDS, "job-intake", self.job_side.intake, self.owned.job_store)
        self._consume(JOB_RESULTS, "job-results", self.job_side.results, self.owned.job_store)

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare the log, start everything, and return; `ready` tells when requests are served."""
        await self.backend.prepare(self.floor)
        self.analyser.start(self._ended)
        self.job_side.start(self._ended)
        await self.application.start()
        self._spawn(self._sweep(), "sweeper")

    def withdraw(self) -> None:
        """Say that the node is about to stop, to health checks and to every reader that waits, now or later."""
        self.followers.withdraw()

    async def stop(self) -> None:
        """Commit what is done and stop."""
        self.withdraw()
        self.owned.ready = False
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.analyser.stop()
        await self.job_side.stop()
        await self.application.stop()
        await self.backend.close()

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = f"{type(error).__name__}: {error}"
            log.error("node.failed", error=self.failure, exc_info=error)
            self._on_failure()

    # --- partitions -------------------------------------------------------------------------------------------------

    def _lost(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._early.clear()
        self.owned.lose()
        self.followers.lose()
        self.references.clear()
        self.analyser.forget_all()
        self.job_side.lose()

    def _regained(self) -> None:
        self._catching_up = self._spawn(self._catch_up(), "catch-up")

    async def _catch_up(self) -> None:
        await self.owned.catch_up(self._survey)
        early, self._early = self._early, {}
        self._take_work(early)
        jobs = self.job_side.begin()
        log.info("node.ready", unfinished_sessions=len(early), unfinished_jobs=jobs)
        self.served.set()

    async def _survey(self) -> None:
        """Find in the rows what is still to be analysed, and which audio must stay in the log."""
        for partition in self.owned.assigned():
            store = self.owned.store(partition)
            for session, head in store.all_heads():
                if head is None:
                    store.tidy(session, None)
                    continue
                for row in store.audio(session, head.cursor.keep, head.next):
                    self.references.add(partition, row.offset)
                if head.analysable:
                    self._early[session] = None
                await asyncio.sleep(0)
            await self.job_side.survey(partition)

    def floor(self, topic: str, partition: int) -> int | None:
        """Return the offset below which nothing of a partition is needed, None while that is not known."""
        committed: int | None = None
        if self.owned.ready:
            committed = self.application.consumer.committed_offset(TopicPartition(topic, partition))
        references = {COMMANDS: self.references, JOB_COMMANDS: self.job_side.references}.get(topic)
        lowest = None if references is None else references.lowest(partition)
        if committed is None or lowest is None:
            return committed
        return min(committed, lowest)

    # --- agents -----------------------------------------------------------------------------------------------------

    def _consume(self, topic: str, name: str, agent: Agent[H], store_of: Callable[[int], HeadStore[H]]) -> None:
        async def park(partition: int, record: LogRecord, cause: str) -> None:
            await self._park(topic, partition, record, cause)

        async def handle(partition: int, records: Sequence[LogRecord]) -> None:
            await fold_batch(lambda: store_of(partition), records, agent, park)
            self.owned.folded(topic, partition, records[-1].offset + 1)

        self.application.consume(topic, name, handle)

    async def _park(self, topic: str, partition: int, record: LogRecord, cause: str) -> None:
        self.parked += 1
        log.warning("record.parked", topic=topic, partition=partition, offset=record.offset, cause=cause)
        parked = Parked(topic, partition, record.offset, cause, record.key or b"", record.value or b"")
        await self._outbox.writer.append(PARKED[topic], partition, record.key, codec.encode(parked), bounded=False)

    def _announce(self, changes: Changes) -> None:
        for session in changes.gone:
            self.analyser.forget(session)
        self.followers.notify(changes.changed)
        self._take_work(changes.work)

    def _take_work(self, sessions: Iterable[str]) -> None:
        if not self.owned.ready:
            self._early.update(dict.fromkeys(sessions))
            return
        for session in sessions:
            self.analyser.enqueue(session)

    async def _emit(self, session: str, result: SessionResult) -> None:
        first = isinstance(result, Failed) or result.first == 0
        await self._outbox.emit(RESULTS, session, result, first=first)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.options.sweep_seconds)
            await sweep(self.owned.stores(), self.backend.now_ms(), self._expire)
            await sweep(self.owned.job_stores(), self.backend.now_ms(), self.job_side.overdue)

    async def _expire(self, session: str, due: int) -> None:
        await self._outbox.append(COMMANDS, session, Expired("sweep", self._idle_ms, due), bounded=False)

    # --- the edge's port --------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """See `topics.ports.sessions.Sessions.new_id`."""
        return self.owned.new_id()

    def owner(self, session: str) -> str | None:
        """See `topics.ports.sessions.Sessions.owner`."""
        return None if self.backend.embedded_log is not None else self.owned.elsewhere(session)

    async def submit(self, session: str, command: SessionCommand) -> Verdict:
        """See `topics.ports.sessions.Sessions.submit`."""
        self.owned.serving(session)
        return await self._outbox.submit(COMMANDS, session, command)

    def view(self, session: str) -> SessionView | None:
        """See `topics.ports.sessions.Sessions.view`."""
        store = self.owned.serving(session)
        head = store.head(session)
        opened = None if head is None else store.opened(session)
        return None if head is None or opened is None else SessionView(opened, head)

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        """See `topics.ports.sessions.Sessions.windows`."""
        store = self.owned.serving(session)
        start = first // BLOCK_WINDOWS
        found: list[Windows] = []
        position = start * BLOCK_WINDOWS
        for block in store.blocks(session, start, (first + count - 1) // BLOCK_WINDOWS + 1):
            tags = len(self.tags(block.model))
            begin = max(first, position) - position
            scores = block.scores[begin * tags : (first + count - position) * tags]
            if scores:
                found.append(Windows(position + begin, block.model, scores))
            position += BLOCK_WINDOWS
        return found

    def follow(self, session: str) -> Follower:
        """See `topics.ports.sessions.Sessions.follow`."""
        return self.followers.follow(session)

    def model(self) -> str:
        """See `topics.ports.sessions.Sessions.model`."""
        return self.models.current.manifest.model_id

    def tags(self, model: str) -> Sequence[str]:
        """See `topics.ports.sessions.Sessions.tags`."""
        return self.models.tags(model)

    def official_tags(self) -> Sequence[str]:
        """See `topics.ports.sessions.Sessions.official_tags`."""
        return self.models.tags(self.model())

    # --- health -----------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        """See `topics.ports.health.Health.alive`."""
        since = self.application.consumer.working_since()
        if self.failure is None and since is not None and time.monotonic() - since > STUCK_SECONDS:
            return f"records of the log have been in work for {time.monotonic() - since:.0f} s"
        return self.failure

    def ready(self) -> str | None:
        """See `topics.ports.health.Health.ready`."""
        if self.failure is not None:
            return self.failure
        if self.followers.withdrawn:
            return "the node is about to stop"
        return None if self.owned.ready else "the log is being read"

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return (name, sentence, value) of what the metrics page shows of the streams."""
        return [
            ("earshot_windows", "Windows analysed and folded by this process.", self.results.windows),
            ("earshot_lag_seconds", "Age of the oldest chunk that is not analysed.", self.analyser.lag()),
            ("earshot_job_lag_seconds", "Age of the oldest ready service of a job.", self.job_side.runner.lag()),
            ("earshot_queue_bytes", "Bytes that wait for the log.", self._outbox.writer.queued_bytes),
            ("earshot_parked_records", "Records moved to a dead-letter topic; look there.", self.parked),
            ("earshot_pending_commands", "Commands without a verdict yet.", len(self.verdicts)),
        ]


def _instance(directory: Path) -> str:
    """Return the name of the node that has its tables here, made at its first start."""
    file = directory / "node-id"
    if not file.exists():
        file.write_text(keys.new_id())
    return file.read_text().strip()
