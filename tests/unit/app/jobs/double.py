"""In-memory jobs port and prober: the rules of `topics.jobs`, with services that tests run by hand."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain

import msgspec

from tests.stored import assert_stored
from tests.unit.app.double import BEGINNING, MODEL, MemoryItems, chosen
from topics import record_codec
from topics.errors import AudioError, Unavailable
from topics.folding import Arrival, Effect, Step, Verdict
from topics.jobs.options import Options, Service
from topics.jobs.records import Accepted, Finished, JobCommand, JobResult, Part, Portion, Source, Started
from topics.jobs.result_rules import fold_result
from topics.jobs.rules import JobHead, fold_command
from topics.keys import new_id
from topics.media import Media
from topics.ports.jobs import JobView
from topics.ports.lists import ListQuery
from topics.ports.pictures import BANDS, RATE, STEP
from topics.ports.prober import ProbeResult

RECORDING = Source("audio/wav", "wav", 1234, 44_100, 2, "a b.wav", "audio/x-wav")


class MemoryPicture:
    """`topics.ports.pictures.Picture` of four seconds of a low hum."""

    seconds = 4.0

    async def spectrogram(self, start_s: float, end_s: float, columns: int) -> bytes:
        return bytes(columns * (BANDS - 1)) + bytes([255]) * columns

    async def waveform(self, first: int, count: int, steps: int) -> list[int]:
        return [-100, 100] * min(count, max(0, -(-(round(self.seconds * RATE / STEP) - first) // steps)))


class Job(msgspec.Struct):
    head: JobHead
    accepted: Accepted | None = None
    parts: dict[int, bytes] = {}
    portions: dict[tuple[Service, int], bytes] = {}


class MemoryJobs(MemoryItems):
    """`topics.ports.jobs.Jobs` without a log; its listeners hear of all jobs, also of other projects."""

    noun = "jobs"

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Job] = {}
        self.appended: list[JobCommand] = []
        #: Uploads that are waiting for the log, and their maximum.
        self.in_flight = 0
        self.most_in_flight = 0
        #: Why there is no picture.
        self.drawing: AudioError | Unavailable | None = None

    async def upload(self, job: str, part: Part, project: str) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        # The order of the log is the order of the calls, not of their answers.
        self.command(job, part)
        try:
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1

    async def submit(self, job: str, command: JobCommand) -> Verdict:
        verdict = self.command(job, command)
        await asyncio.sleep(0)
        return verdict

    def view(self, job: str) -> JobView | None:
        known = self.jobs.get(job)
        if known is None or known.accepted is None or not known.head.visible:
            return None
        return JobView(known.accepted, known.head)

    def portion(self, job: str, service: Service, number: int) -> bytes | None:
        known = self.jobs.get(job)
        return None if known is None else known.portions.get((service, number))

    def listed(self, query: ListQuery) -> list[tuple[int, str, JobView]]:
        views = [(job, view) for job in self.jobs if (view := self.view(job)) is not None]
        entries = [(view.head.created, job, view) for job, view in views if view.accepted.project == query.project]
        return chosen(entries, query)

    @asynccontextmanager
    async def recording(self, job: str) -> AsyncIterator[int]:
        known = self.jobs.get(job)
        if known is None or not known.head.needs_audio:
            raise AudioError("the audio of the job was not kept")
        with tempfile.TemporaryFile() as file:
            file.write(b"".join(known.parts[number] for number in sorted(known.parts)))
            file.flush()
            yield file.fileno()

    async def audio(self, job: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        known = self.jobs.get(job)
        if known is None or known.accepted is None or not known.parts:
            raise AudioError("the audio of the job was not kept")
        data = b"".join(known.parts[number] for number in sorted(known.parts))
        yield data.ljust(known.accepted.source.size, b"\0")[start:end]

    async def picture(self, job: str, wait_s: float) -> MemoryPicture:
        if self.drawing:
            raise self.drawing
        return MemoryPicture()

    def create(
        self,
        options: Options,
        source: Source = RECORDING,
        project: str = "project",
        organization: str = "organization",
        keep_audio_ms: int = 0,
    ) -> str:
        """Return a new accepted job."""
        job = new_id()
        self.command(job, Part("part", "upload", 0, b"audio"))
        accepted = Accepted(
            "accept", "upload", 1, project, organization, options, source, MODEL, b"digest", keep_audio_ms
        )
        assert self.command(job, accepted).status == 200
        return job

    def command(self, job: str, command: JobCommand) -> Verdict:
        """Append a command and fold it in."""
        if self.failure is not None:
            raise self.failure
        assert_stored(command, record_codec.decode_job_command)
        self.appended.append(command)
        known = self.jobs.get(job)
        offset = len(self.appended)
        step = fold_command(None if known is None else known.head, command, Arrival(offset, BEGINNING + offset))
        self._keep(job, step)
        known = self.jobs.get(job)
        if known is not None and isinstance(command, Part) and Effect.KEEP_AUDIO in step.effects:
            known.parts[command.number] = command.data
        if known is not None and isinstance(command, Accepted) and Effect.KEEP_REQUEST in step.effects:
            known.accepted = command
        return step.verdict

    def conclude(self, job: str, result: JobResult) -> None:
        """Fold in a result record."""
        known = self.jobs.get(job)
        step = fold_result(None if known is None else known.head, result)
        if known is not None and isinstance(result, Portion) and Effect.KEEP_RESULT in step.effects:
            known.portions[result.service, result.number] = result.data
        self._keep(job, step)

    def perform(self, job: str, service: Service, *portions: bytes, run: str = "run", **finished: object) -> None:
        """Run a service from start to end; `finished` are fields of its `Finished`."""
        self.conclude(job, Started(service, run))
        for number, data in enumerate(portions):
            self.conclude(job, Portion(service, run, number, data, (number + 1) / len(portions)))
        end = Finished(service, run, len(portions))
        self.conclude(job, msgspec.structs.replace(end, **finished))

    def _keep(self, job: str, step: Step[JobHead]) -> None:
        known = self.jobs.get(job)
        if step.head is None:
            self.jobs.pop(job, None)
        elif known is None:
            known = self.jobs[job] = Job(step.head)
        else:
            known.head = step.head
        if known is not None and Effect.DROP_AUDIO in step.effects:
            known.parts.clear()
        if known is not None and Effect.ERASE in step.effects:
            known.accepted = None
            known.parts.clear()
            known.portions.clear()
        self.followers.wake(job)
        for listener in chain.from_iterable(self.listeners.values()):
            listener.note_job(job)


class MemoryProber:
    """`topics.ports.prober.Prober` with configurable answers."""

    def __init__(self) -> None:
        self.found = ProbeResult("audio/wav", "wav", 44_100, 2)
        self.failure: AudioError | Unavailable | None = None
        self.asked: list[Media | None] = []

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        await asyncio.sleep(0)
        self.asked.append(declared)
        if self.failure is not None:
            raise self.failure
        return self.found
