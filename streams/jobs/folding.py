"""What both folding agents of jobs share: carrying out effects, and telling others once a batch is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import msgspec

from streams.folding.fold import LogRecord
from streams.folding.references import References
from streams.folding.store import Draft
from topics import keys, rows
from topics.jobs.rules import JobEffect, JobHead, JobStep


class News(msgspec.Struct):
    """What a batch changed, by job id. Who is told hears of `gone` first: a job may be removed and come again."""

    changed: dict[str, None] = {}
    work: dict[str, None] = {}
    unbilled: dict[str, None] = {}
    gone: dict[str, None] = {}


Announce = Callable[[News], Awaitable[None]]


class JobFolder:
    """The part of `JobIntake` and `JobResults` that is the same."""

    def __init__(self, references: References, announce: Announce) -> None:
        self.references = references
        self.announce = announce
        self.news = News()

    def carry_out(self, draft: Draft[JobHead], job: str, before: JobHead | None, step: JobStep) -> None:
        """Carry out the effects that need no record, and write the head where it is another one."""
        if step.head is not None and step.head is not before:
            draft.put_head(job, step.head)
        for effect in step.effects:
            match effect:
                case JobEffect.DROP_PARTS:
                    self._drop_parts(draft, job, before)
                case JobEffect.ERASE:
                    self._erase(draft, job, before, step.head)
                case JobEffect.CANCEL:
                    self.news.gone[job] = None
                    self.news.work.pop(job, None)
                case JobEffect.WORK:
                    self.news.work[job] = None
                case JobEffect.BILL:
                    self.news.unbilled[job] = None
        if step.effects or step.head is not before:
            self.news.changed[job] = None

    def _drop_parts(self, draft: Draft[JobHead], job: str, head: JobHead | None) -> None:
        partition = draft.store.partition.number
        for key, offset in _parts(draft, job, head):
            if offset is not None:
                self.references.discard(partition, offset)
            draft.delete(key)

    def _erase(self, draft: Draft[JobHead], job: str, before: JobHead | None, rest: JobHead | None) -> None:
        self._drop_parts(draft, job, before)
        accepted = draft.get(keys.job_key(job, keys.ACCEPTED))
        draft.erase(job)
        if rest is not None:
            draft.put_head(job, rest)
            if accepted is not None and rest.unbilled:
                draft.put(keys.job_key(job, keys.ACCEPTED), accepted)

    async def written(self, partition: int) -> None:
        """Tell what the batch changed."""
        news, self.news = self.news, News()
        if news.changed:
            await self.announce(news)

    def dropped(self, record: LogRecord, cause: str) -> None:
        """Nobody can be told: a record that was parked is unreadable, or does not fold."""


def _parts(draft: Draft[JobHead], job: str, head: JobHead | None) -> Iterator[tuple[bytes, int | None]]:
    """Yield the key and the log offset of every part that a job may have, as the batch sees them."""
    for number in range(0 if head is None else head.parts):
        key = keys.job_key(job, keys.PART, number)
        row = rows.audio(draft.get(key))
        yield key, None if row is None else row.offset
