"""The law of a job: what each command and each result does in each state.

A job is a fold of its records, as a session is (`topics.sessions.rules`). Records arrive at least once: what was folded
before is written again, never skipped. A service may be run several times, by a node that died and by the one that
took over; each run has a name, and of a job's entry only the run that ended it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from topics.folding import Verdict
from topics.jobs.options import NEEDS, Service
from topics.jobs.records import (
    Accepted,
    Billed,
    Finished,
    JobCommand,
    JobResult,
    Overdue,
    Part,
    Portion,
    Removed,
    Started,
)

#: The error of a service whose result has a gap.
LOST: Final = "a part of the result was lost"
#: An upload that gets no part for longer than this is given up.
UPLOAD_IDLE_MS: Final = 3600 * 1000


class JobState(StrEnum):
    """States of a job. ABSENT is also what a job is once its time is over."""

    ABSENT = "absent"
    #: Its audio is on the way; nobody has an id yet.
    RECEIVING = "receiving"
    ACCEPTED = "accepted"
    PROCESSING = "processing"
    COMPLETED = "completed"
    #: Removed by its client. Remembered until its time is over: a request that is repeated under its Idempotency-Key
    #: must not run again, and the ledger may not hold all that it cost.
    REMOVED = "removed"


class EntryState(StrEnum):
    """States of one service of a job."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"


ENDED: Final = frozenset({EntryState.SUCCESS, EntryState.ERROR})


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One service of a job."""

    service: Service
    state: EntryState = EntryState.PENDING
    run: str = ""
    #: Portions of this run.
    portions: int = 0
    done: float = 0.0
    error: str | None = None
    audio_ms: int = 0
    model: str = ""
    warnings: tuple[str, ...] = ()
    #: The job's revision when the entry changed last.
    revision: int = 0
    billed: bool = False

    @property
    def ended(self) -> bool:
        """True once the service has its result or its error."""
        return self.state in ENDED


class JobHead(msgspec.Struct, frozen=True, array_like=True):
    """The part of a job that changes."""

    state: JobState
    #: Offset of the command that was folded last: a command at or below it was folded before.
    command: int
    #: Log time (ms) of the last command.
    touched: int
    upload: str
    parts: int = 0
    received: int = 0
    #: Log time (ms) of the acceptance.
    created: int = 0
    entries: tuple[Entry, ...] = ()
    #: Counts the changes that a reader can see.
    revision: int = 0
    digest: bytes = b""

    def entry(self, service: Service) -> Entry | None:
        """Return the entry of a service, None where it was not asked for."""
        return next((entry for entry in self.entries if entry.service is service), None)

    @property
    def unbilled(self) -> tuple[Entry, ...]:
        """Entries that succeeded and that the ledger may not hold."""
        return tuple(entry for entry in self.entries if entry.state is EntryState.SUCCESS and not entry.billed)

    @property
    def unfinished(self) -> bool:
        """True while there is work to do."""
        return self.state in (JobState.ACCEPTED, JobState.PROCESSING)

    @property
    def needs_audio(self) -> bool:
        """True while the parts are read, or will be."""
        return self.unfinished or self.state is JobState.RECEIVING

    @property
    def visible(self) -> bool:
        """True for a job that can be read."""
        return self.state in (JobState.ACCEPTED, JobState.PROCESSING, JobState.COMPLETED)

    @property
    def ready(self) -> tuple[Service, ...]:
        """Services that have not ended and wait for no other one; what was not asked for is not waited for."""
        if not self.unfinished:
            return ()
        left = [entry.service for entry in self.entries if not entry.ended]
        return tuple(service for service in left if not set(NEEDS.get(service, ())).intersection(left))

    def due(self, keep_ms: int) -> int:
        """Return the log time (ms) after which the job may be removed."""
        return self.touched + UPLOAD_IDLE_MS if self.state is JobState.RECEIVING else self.created + keep_ms


class JobEffect(StrEnum):
    """What the stream does besides writing the head."""

    KEEP_PART = "write the part row: log offset, length, hash"
    DROP_PARTS = "delete the part rows that are there: nothing will read them"
    KEEP_ACCEPTED = "keep the acceptance"
    KEEP_PORTION = "write the portion row"
    WORK = "tell the runner that services may begin"
    BILL = "tell the ledger"
    WATCH = "enter the job in the expiry index"
    UNWATCH = "drop the entry of the expiry index that led here"
    CANCEL = "stop what runs for the job"
    ERASE = "delete every row of the job but the head, if there is one, and the acceptance while it is not billed"


class JobStep(msgspec.Struct, frozen=True):
    """The outcome of one record; `head` None: there is no job (any more)."""

    head: JobHead | None
    effects: tuple[JobEffect, ...] = ()
    #: The answer to a command.
    verdict: Verdict = Verdict(200)


ABSENT: Final = Verdict(404, error="Not Found")
_OTHER_UPLOAD: Final = Verdict(409, error="another request with this Idempotency-Key took over")
_OTHER_REQUEST: Final = Verdict(409, error="the Idempotency-Key was used for another request")
_REMOVED: Final = Verdict(409, error="the Idempotency-Key was used for a job that was removed")
_GONE: Final = (JobEffect.CANCEL, JobEffect.ERASE)


# --- commands -------------------------------------------------------------------------------------------------------


def _begin(head: JobHead | None, command: Part, offset: int, at: int) -> JobStep:
    if command.number:
        return JobStep(head, verdict=ABSENT)
    begun = JobHead(JobState.RECEIVING, offset, at, command.upload, 1, len(command.data))
    return JobStep(begun, (JobEffect.KEEP_PART, JobEffect.WATCH))


def _part(head: JobHead, command: Part, offset: int, at: int) -> JobStep:
    if command.number == 0:
        again = JobHead(JobState.RECEIVING, offset, at, command.upload, 1, len(command.data))
        return JobStep(again, (JobEffect.DROP_PARTS, JobEffect.KEEP_PART))
    if command.upload != head.upload or command.number != head.parts:
        return JobStep(head, verdict=_OTHER_UPLOAD)
    received = head.received + len(command.data)
    grown = msgspec.structs.replace(head, command=offset, touched=at, parts=head.parts + 1, received=received)
    return JobStep(grown, (JobEffect.KEEP_PART,))


def _accept(head: JobHead, command: Accepted, offset: int, at: int) -> JobStep:
    if command.upload != head.upload or command.parts != head.parts:
        return JobStep(head, verdict=_OTHER_UPLOAD)
    accepted = msgspec.structs.replace(
        head,
        state=JobState.ACCEPTED,
        command=offset,
        touched=at,
        created=at,
        entries=tuple(Entry(service, revision=1) for service in command.options.services),
        revision=1,
        digest=command.digest,
    )
    return JobStep(accepted, (JobEffect.KEEP_ACCEPTED, JobEffect.WATCH, JobEffect.WORK))


def _absent(head: JobHead | None, command: JobCommand, offset: int, at: int) -> JobStep:
    return JobStep(head, verdict=ABSENT)


def _late_part(head: JobHead, command: Part, offset: int, at: int) -> JobStep:
    return JobStep(head, verdict=_OTHER_UPLOAD)


def _accepted_before(head: JobHead, command: Accepted, offset: int, at: int) -> JobStep:
    return JobStep(head, verdict=Verdict(200) if command.digest == head.digest else _OTHER_REQUEST)


def _remove(head: JobHead, command: Removed, offset: int, at: int) -> JobStep:
    rest = msgspec.structs.replace(head, state=JobState.REMOVED, command=offset, touched=at, entries=head.unbilled)
    return JobStep(rest, (*_GONE, JobEffect.BILL) if rest.entries else _GONE, Verdict(204))


def _overdue(head: JobHead, command: Overdue, offset: int, at: int) -> JobStep:
    if at > head.due(command.keep_ms) and not head.unbilled:
        return JobStep(None, (JobEffect.UNWATCH, *_GONE), Verdict(204))
    # The command is noted: delivered again, after the bill perhaps, it must not be judged anew.
    kept = msgspec.structs.replace(head, command=offset)
    return JobStep(kept, (JobEffect.UNWATCH, JobEffect.WATCH), Verdict(409, error="the job is kept"))


def _removed_before(head: JobHead | None, command: Removed, offset: int, at: int) -> JobStep:
    # Erased once more: the command may be a redelivery whose deletions never reached the changelog.
    return JobStep(head, _GONE, ABSENT)


def _overdue_before(head: None, command: Overdue, offset: int, at: int) -> JobStep:
    return JobStep(None, (JobEffect.UNWATCH, *_GONE), ABSENT)


def _used(head: JobHead, command: JobCommand, offset: int, at: int) -> JobStep:
    return JobStep(head, verdict=_REMOVED)


Rule = Callable[..., JobStep]
_KNOWN: Final = (JobState.ACCEPTED, JobState.PROCESSING, JobState.COMPLETED)

TABLE: Final[Mapping[tuple[JobState, type], Rule]] = {
    (JobState.ABSENT, Part): _begin,
    (JobState.ABSENT, Accepted): _absent,
    (JobState.ABSENT, Removed): _removed_before,
    (JobState.ABSENT, Overdue): _overdue_before,
    (JobState.RECEIVING, Part): _part,
    (JobState.RECEIVING, Accepted): _accept,
    (JobState.RECEIVING, Removed): _absent,
    (JobState.RECEIVING, Overdue): _overdue,
    **{(state, Part): _late_part for state in _KNOWN},
    **{(state, Accepted): _accepted_before for state in _KNOWN},
    **{(state, Removed): _remove for state in _KNOWN},
    **{(state, Overdue): _overdue for state in _KNOWN},
    (JobState.REMOVED, Part): _used,
    (JobState.REMOVED, Accepted): _used,
    (JobState.REMOVED, Removed): _removed_before,
    (JobState.REMOVED, Overdue): _overdue,
}


def state_of(head: JobHead | None) -> JobState:
    """Return the state of a job whose head is `head`, None where there is none."""
    return JobState.ABSENT if head is None else head.state


def fold_command(head: JobHead | None, command: JobCommand, offset: int, at: int) -> JobStep:
    """Apply one command at `offset`, log time `at` (ms), that was not folded before (`offset > head.command`)."""
    return TABLE[state_of(head), type(command)](head, command, offset, at)


# --- results --------------------------------------------------------------------------------------------------------


def fold_result(head: JobHead | None, result: JobResult) -> JobStep:
    """Apply one result, new or delivered again; one of a run that no longer counts changes nothing."""
    if head is None or head.state is JobState.RECEIVING:
        return JobStep(head)
    if isinstance(result, Billed):
        return _billed(head, result)
    entry = head.entry(result.service)
    if entry is None or head.state is JobState.REMOVED:
        return JobStep(head)
    if isinstance(result, Started):
        return _started(head, entry, result)
    if entry.run != result.run:
        return JobStep(head)
    return _portion(head, entry, result) if isinstance(result, Portion) else _finished(head, entry, result)


def _started(head: JobHead, entry: Entry, result: Started) -> JobStep:
    if entry.ended or entry.run == result.run:
        return JobStep(head)
    return JobStep(_changed(head, Entry(entry.service, EntryState.RUNNING, result.run)))


def _portion(head: JobHead, entry: Entry, result: Portion) -> JobStep:
    if result.number < entry.portions:
        return JobStep(head, (JobEffect.KEEP_PORTION,))
    if entry.ended or result.number > entry.portions:
        return JobStep(head)  # one before it was parked; the `Finished` of the run says how many there should be
    grown = msgspec.structs.replace(entry, portions=result.number + 1, done=result.done)
    return JobStep(_changed(head, grown), (JobEffect.KEEP_PORTION,))


def _finished(head: JobHead, entry: Entry, result: Finished) -> JobStep:
    if entry.ended:
        return JobStep(head, _after(head, entry))
    error = result.error if result.portions == entry.portions else result.error or LOST
    state = EntryState.SUCCESS if error is None else EntryState.ERROR
    ended = msgspec.structs.replace(
        entry,
        state=state,
        done=1.0,
        error=error,
        audio_ms=result.audio_ms,
        model=result.model,
        warnings=result.warnings,
    )
    known = _changed(head, ended)
    return JobStep(known, _after(known, ended))


def _after(head: JobHead, entry: Entry) -> tuple[JobEffect, ...]:
    """What an entry that ended sets going."""
    bill = (JobEffect.BILL,) if entry.state is EntryState.SUCCESS and not entry.billed else ()
    return (*bill, JobEffect.DROP_PARTS if head.state is JobState.COMPLETED else JobEffect.WORK)


def _billed(head: JobHead, result: Billed) -> JobStep:
    billed = {entry.service for entry in head.unbilled}.intersection(result.services)
    entries = tuple(
        msgspec.structs.replace(entry, billed=True) if entry.service in billed else entry for entry in head.entries
    )
    known = msgspec.structs.replace(head, entries=entries)
    if head.state is JobState.REMOVED:
        rest = msgspec.structs.replace(known, entries=known.unbilled)
        return JobStep(rest, () if rest.entries else (JobEffect.ERASE,))
    return JobStep(known)


def _changed(head: JobHead, entry: Entry) -> JobHead:
    revision = head.revision + 1
    entry = msgspec.structs.replace(entry, revision=revision)
    entries = tuple(entry if other.service is entry.service else other for other in head.entries)
    state = JobState.COMPLETED if all(other.ended for other in entries) else JobState.PROCESSING
    return msgspec.structs.replace(head, state=state, entries=entries, revision=revision)
