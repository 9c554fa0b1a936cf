"""The results agent of jobs: folds what the services found into heads and portions."""

from __future__ import annotations

from streams.folding.fold import LogRecord, name_of
from streams.folding.store import Draft
from streams.jobs.folding import JobFolder
from topics import codec, keys
from topics.jobs.records import Portion
from topics.jobs.rules import JobEffect, JobHead, fold_result


class JobResults(JobFolder):
    """Folds the records of the job result topic; one object for all partitions of a node."""

    def fold(self, draft: Draft[JobHead], record: LogRecord) -> None:
        """Fold one result; one for a job that is gone is dropped."""
        result = codec.decode_job_result(record.value)
        job = name_of(record)
        head = draft.head(job)
        if head is None:
            return
        step = fold_result(head, result)
        # Written also when it did not change: what was folded before may not be in the changelog.
        draft.put_head(job, head)
        self.carry_out(draft, job, head, step)
        if JobEffect.KEEP_PORTION in step.effects and isinstance(result, Portion):
            draft.put(keys.portion_key(job, result.service, result.number), result.data)
