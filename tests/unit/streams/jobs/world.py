"""One job in one partition with its logs, folded by the real folds, and crashes at any point."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.fold import Changes
from streams.jobs.job_intake import JobIntake
from streams.jobs.job_results import JobResults
from streams.jobs.job_store import JobStore
from streams.log import StoredRecord
from tests.unit.streams.folding.world import PartitionWorld
from tests.unit.streams.sessions.rows import delivered
from topics import keys, record_codec
from topics.folding import AudioRow
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


class JobWorld(PartitionWorld[JobHead]):
    """The partition; appended records are folded on request."""

    store: JobStore
    kind = keys.JOB

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.commands: list[StoredRecord] = []
        self.results: list[StoredRecord] = []
        #: Number of results folded before each command was first folded.
        self.before: dict[int, int] = {}
        super().__init__()

    def begin(self) -> None:
        """Create a process's memory."""
        self.store = JobStore(self.partition)
        self.verdicts = Verdicts()
        self.intake = JobIntake(self.verdicts, KEEP_MS, self._announce)
        self.job_results = JobResults(self._announce)
        self.announced: list[Changes] = []

    def _announce(self, changes: Changes) -> None:
        self.announced.append(changes)
        for job in changes.leftovers:
            self.tidy(job)

    def needed_audio(self, id: str, head: JobHead) -> Sequence[AudioRow]:
        return self.store.audio(id, 0, head.parts) if head.needs_audio else ()

    @property
    def head(self) -> JobHead | None:
        return self.store.head(JOB)

    @property
    def there(self) -> JobHead:
        head = self.head
        assert head is not None
        return head

    def left(self) -> set[bytes]:
        return {key for key in self.partition.rows if key.startswith(self.store.prefix(JOB))}

    # --- the logs ---------------------------------------------------------------------------------------------------

    def append(self, record: JobCommand | JobResult) -> None:
        log = self.results if isinstance(record, JobResult) else self.commands
        log.append(delivered(len(log), JOB, record, self.now))

    def take(self, *records: JobCommand | JobResult) -> None:
        """Append records, and fold each."""
        for record in records:
            self.append(record)
            self.fold_all()

    def fold_command(self) -> None:
        commands, results = self.folded
        self.fold([self.commands[commands]], self.intake)
        self.before.setdefault(commands, results)
        self.folded = commands + 1, results

    def fold_result(self) -> None:
        commands, results = self.folded
        self.fold([self.results[results]], self.job_results)
        self.folded = commands, results + 1

    def fold_all(self) -> None:
        while self.folded[0] < len(self.commands):
            self.fold_command()
        while self.folded[1] < len(self.results):
            self.fold_result()

    def flush(self) -> None:
        self.flushed = self.durable = len(self.partition.changelog)

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
        """Lose what a crash loses; recover the rows, catch up with both logs, check the rows.

        `then` is another crash (its `kept` and `local`), after that many records were folded again.
        """
        reached = self.folded
        self.lose(kept, local, standby)
        if then is not None:
            for step in self._steps(reached, order)[: then[0]]:
                step()
            self.lose(*then[1:], standby)
        for step in self._steps(reached, order):
            step()
        self.survey()

    def _steps(self, reached: tuple[int, int], order: Random) -> list[Callable[[], None]]:
        """Return the folds up to the logs' earlier positions, each topic in order."""
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
