"""The intake agent of jobs: folds commands into heads, acceptances and part rows, and resolves the verdicts."""

from __future__ import annotations

import xxhash

from streams.folding.fold import LogRecord, name_of
from streams.folding.references import References
from streams.folding.store import Draft
from streams.folding.verdicts import Verdicts
from streams.jobs.folding import Announce, JobFolder
from topics import codec, keys, rows
from topics.folding import Verdict
from topics.jobs import rules
from topics.jobs.records import Accepted, JobCommand, Overdue, Part
from topics.jobs.rules import JobEffect, JobHead
from topics.rows import AudioRow


class JobIntake(JobFolder):
    """Folds the records of the job command topic; one object for all partitions of a node."""

    def __init__(self, verdicts: Verdicts, references: References, keep_ms: int, announce: Announce) -> None:
        super().__init__(references, announce)
        self.verdicts = verdicts
        self.keep_ms = keep_ms
        self._answers: list[tuple[str, Verdict]] = []

    def fold(self, draft: Draft[JobHead], record: LogRecord) -> None:
        """Fold one command."""
        command = codec.decode_job_command(record.value)
        job = name_of(record)
        head = draft.head(job)
        if head is not None and record.offset <= head.command:
            self._again(draft, job, head, command, record.offset)
            return
        step = rules.fold_command(head, command, record.offset, record.timestamp)
        self.carry_out(draft, job, head, step)
        # After what is dropped: an upload that begins again writes its first part over an old one.
        for effect in step.effects:
            match effect, command:
                case JobEffect.KEEP_PART, Part():
                    _keep_part(draft, job, command, record.offset)
                    self.references.add(draft.store.partition.number, record.offset)
                case JobEffect.KEEP_ACCEPTED, Accepted():
                    draft.put(keys.job_key(job, keys.ACCEPTED), rows.encode(command))
                case JobEffect.UNWATCH, Overdue():
                    draft.delete(keys.due_key(command.due, job, keys.JOB_DUE))
                case JobEffect.WATCH, _ if step.head is not None:
                    self._watch(draft, job, step.head)
        self._answers.append((command.command, step.verdict))

    def _again(self, draft: Draft[JobHead], job: str, head: JobHead, command: JobCommand, offset: int) -> None:
        """A command that was folded before the last stop: write its rows again, the changelog may not have them."""
        draft.put_head(job, head)
        match command:
            case Part(upload=head.upload) if command.number < head.parts and head.needs_audio:
                _keep_part(draft, job, command, offset)
            case Accepted(upload=head.upload) if head.visible or head.unbilled:
                draft.put(keys.job_key(job, keys.ACCEPTED), rows.encode(command))
            case Overdue():
                draft.delete(keys.due_key(command.due, job, keys.JOB_DUE))
        if not (isinstance(command, Part) and command.number):
            self._watch(draft, job, head)
        self.news.changed[job] = self.news.work[job] = None

    def _watch(self, draft: Draft[JobHead], job: str, head: JobHead) -> None:
        draft.put(keys.due_key(head.due(self.keep_ms), job, keys.JOB_DUE), b"")

    async def written(self, partition: int) -> None:
        """Resolve the verdicts of the batch and tell what it changed."""
        answers, self._answers = self._answers, []
        for command, verdict in answers:
            self.verdicts.resolve(command, verdict)
        await super().written(partition)


def _keep_part(draft: Draft[JobHead], job: str, part: Part, offset: int) -> None:
    row = AudioRow(offset, len(part.data), xxhash.xxh3_128_digest(part.data))
    draft.put(keys.job_key(job, keys.PART, part.number), rows.encode(row))
