"""The fold of job results: folds the services' reports into heads and portions."""

from streams.folding.draft import Draft
from streams.folding.fold import Fold
from streams.folding.record import id_of
from streams.log import StoredRecord
from topics import keys, record_codec, traces
from topics.folding import Effect
from topics.jobs.records import Portion
from topics.jobs.result_rules import fold_result
from topics.jobs.rules import EntryState, JobHead


class JobResults(Fold[JobHead]):
    """Folds the job result topic. Loop only."""

    decode = staticmethod(record_codec.decode_job_result)

    def fold(self, draft: Draft[JobHead], record: StoredRecord) -> None:
        result = self.content(record)
        job = id_of(record)
        head = draft.head(job)
        step = fold_result(head, result, record.timestamp)
        if head is None or step.head is None:
            return
        # Written even without a change: the changelog may lack earlier folds.
        draft.put_head(job, step.head, again=step.head == head)
        for effect in step.effects:
            if effect is Effect.KEEP_RESULT and isinstance(result, Portion):
                draft.put(keys.portion_key(job, result.service, result.number), result.data)
            else:
                self.carry_out(draft, job, effect, head, step.head)
        if traces.tracer is not None and head.unfinished and not step.head.unfinished:
            failures = sum(entry.state is EntryState.ERROR for entry in step.head.entries)
            traces.tracer.completed(job, step.head.created, record.timestamp, failures)
        if step.effects or step.head is not head:
            self.changes.changed[job] = None
