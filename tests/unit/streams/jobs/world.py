"""One job in one partition with its logs, folded by the real agents, and crashes at any point."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from streams.folding.agent import Agent, Changes
from streams.folding.awaited_verdicts import Verdicts
from streams.folding.record import LogRecord
from streams.jobs.intake import JobIntake
from streams.jobs.results import JobResults
from streams.jobs.store import JobStore
from tests.unit.streams.lists import assert_listed
from tests.unit.streams.sessions.rows import Delivered, MemoryPartition, delivered, fold, replay, run
from topics import keys, record_codec
from topics.jobs.options import Options
from topics.jobs.records import Accepted, JobCommand, JobResult, Overdue, Removed, Source
from topics.jobs.rules import JobHead

JOB: Final = "J" * 24
SOURCE: Final = Source("audio/wav", "wav", 1, 8000, 1)
SOUNDS: Final = Options(sound_event_detection=True)
KEEP_MS: Final = 30 * 24 * 3600 * 1000


def accepted(
    upload: str, parts: int, options: Options = SOUNDS, digest: bytes = b"d", keep_audio_ms: int = 0
) -> Accepted:
    return Accepted("c", upload, parts, "p", "o", options, SOURCE, "m", digest, keep_audio_ms)


class JobWorld:
    """The partition; what is appended is folded when it is told to."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.commands: list[Delivered] = []
        self.results: list[Delivered] = []
        self.partition = MemoryPartition()
        self.flushed = 0
        self.folded = self.committed = (0, 0)
        #: Results that were folded when a command first was.
        self.before: dict[int, int] = {}
        self.begin()
        self.store.claim_lists()
        self.commit()

    def begin(self) -> None:
        """What a process holds in memory."""
        self.store = JobStore(self.partition)
        self.verdicts = Verdicts()
        self.intake = JobIntake(self.verdicts, KEEP_MS, self._announce)
        self.agent = JobResults(self._announce)
        self.announced: list[Changes] = []

    def _announce(self, changes: Changes) -> None:
        self.announced.append(changes)
        for job in changes.leftovers:
            while not self.store.tidy(job):
                pass

    async def _park(self, partition: int, record: LogRecord, cause: str) -> None:
        raise AssertionError(cause)

    @property
    def head(self) -> JobHead | None:
        return self.store.head(JOB)

    # --- the logs ---------------------------------------------------------------------------------------------------

    def command(self, command: JobCommand) -> None:
        self.commands.append(delivered(len(self.commands), JOB, command, self.now))

    def result(self, result: JobResult) -> None:
        self.results.append(delivered(len(self.results), JOB, result, self.now))

    def fold_command(self) -> None:
        commands, results = self.folded
        self._fold(self.commands[commands], self.intake)
        self.before.setdefault(commands, results)
        self.folded = commands + 1, results

    def fold_result(self) -> None:
        commands, results = self.folded
        self._fold(self.results[results], self.agent)
        self.folded = commands, results + 1

    def _fold(self, record: Delivered, agent: Agent[JobHead]) -> None:
        run(fold(self.store, [record], agent, self._park))

    def fold_all(self) -> None:
        while self.folded[0] < len(self.commands):
            self.fold_command()
        while self.folded[1] < len(self.results):
            self.fold_result()

    def flush(self) -> None:
        self.flushed = len(self.partition.changelog)

    def commit(self) -> None:
        """Note the positions behind the rows that come of what is folded."""
        self.flush()
        self.committed = self.folded

    # --- crash and recovery -----------------------------------------------------------------------------------------

    def crash(
        self,
        kept: float,
        local: bool,
        order: Random,
        then: tuple[int, float, bool] | None = None,
        *,
        standby: bool = False,
    ) -> None:
        """Lose what a crash loses; recover the rows, catch up with both logs, look at the rows.

        `then` is another crash (its `kept` and `local`), after so many records were folded again. Where a `standby`
        takes over in place of a node without local rows, its table was looked through when it was an owner's.
        """
        reached = self.folded
        self._lose(kept, local, standby)
        if then is not None:
            for step in self._steps(reached, order)[: then[0]]:
                step()
            self._lose(*then[1:], standby)
        for step in self._steps(reached, order):
            step()
        self.survey()

    def _lose(self, kept: float, local: bool, standby: bool) -> None:
        changelog = self.partition.changelog
        durable = self.flushed + int((len(changelog) - self.flushed) * kept)
        marks = {keys.INDEXED + keys.JOB: b""} if standby else {}
        rows = self.partition.rows if local else marks
        start = self.flushed if local else 0
        self.partition = MemoryPartition()
        self.partition.changelog = changelog[:durable]
        self.partition.rows = replay(rows, self.partition.changelog[start:])
        self.folded = self.committed
        self.begin()

    def _steps(self, reached: tuple[int, int], order: Random) -> list[Callable[[], None]]:
        """Return the folds that lead to where the log was folded to, each topic in its order."""
        commands, results = self.folded
        steps: list[Callable[[], None]] = []
        while (commands, results) != reached:
            ends = (Removed, Overdue)
            waits = (
                commands < reached[0]
                and results < self.before[commands]
                and isinstance(record_codec.decode_job_command(self.commands[commands].value), ends)
            )
            if commands < reached[0] and not waits and (results == reached[1] or order.random() < 0.5):
                commands += 1
                steps.append(self.fold_command)
            else:
                results += 1
                steps.append(self.fold_result)
        return steps

    def survey(self) -> None:
        """As a node does before it serves: it makes the index where that is due, and looks at what is in it."""
        if not self.store.indexed:
            for _ in self.store.build_index():
                pass
        self.store.claim_lists()
        for job in list(self.store.unsettled_ids()):
            head = self.store.head(job)
            if head is None or not head.unsettled or self.store.is_erased(head):
                while not self.store.tidy(job):
                    pass
            elif head.needs_audio:
                for row in self.store.audio(job, 0, head.parts):
                    self.store.references.add(row.offset)
        self.store.redelivered.clear()
        self.assert_indexed()

    def assert_indexed(self) -> None:
        """What has work, or has left rows, is in the index; what is settled is not."""
        heads = {job: self.store.head(job) for job in self.store.all_ids()}
        unsettled = {job for job, head in heads.items() if head is None or head.unsettled}
        assert set(self.store.unsettled_ids()) == unsettled
        assert_listed(self.store)
