"""The rules of a job: the effect of each command in each state. `result_rules` has those of results."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from topics.folding import Arrival, AudioRow, Effect, Step, Verdict, refusal
from topics.jobs.options import NEEDS, Service
from topics.jobs.records import (
    Accepted,
    JobCommand,
    Overdue,
    Part,
    Removed,
)

#: An upload is dropped after this time without a new part.
UPLOAD_IDLE_MS: Final = 3600 * 1000


class JobState(StrEnum):
    """States of a job. An expired job is ABSENT again."""

    ABSENT = "absent"
    #: The audio is being uploaded; the client does not have the id yet.
    RECEIVING = "receiving"
    ACCEPTED = "accepted"
    PROCESSING = "processing"
    COMPLETED = "completed"
    #: Removed by its client, but remembered until it would expire: a repeated request with its Idempotency-Key must not
    #: run again, and some of its cost may not be in the ledger yet.
    REMOVED = "removed"


#: States in which a job is readable and listed. Their order is part of the lists' keys: add only at the end.
VISIBLE_STATES: Final = (JobState.ACCEPTED, JobState.PROCESSING, JobState.COMPLETED)


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
    #: The job's revision at the entry's last change.
    revision: int = 0
    billed: bool = False
    #: Number of portions of the run that got furthest.
    furthest: int = 0
    #: Starts without progress by processes that were ended from outside (`Started`).
    kills: int = 0
    #: The lives of the processes that started it without progress and may have died since (`Started`).
    begun_by: tuple[str, ...] = ()
    #: Milliseconds of silence for gaps in the audio, as far as a service has measured them; they are not billed.
    silence_ms: int = 0

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class JobHead(msgspec.Struct, frozen=True, array_like=True):
    """The part of a job that changes."""

    state: JobState
    #: Offset of the last folded command.
    command: int
    #: Log time (ms) of the last command.
    touched: int
    upload: str
    parts: int = 0
    received: int = 0
    #: Log time (ms) of the acceptance.
    created: int = 0
    entries: tuple[Entry, ...] = ()
    #: Counts the changes that readers can see.
    revision: int = 0
    digest: bytes = b""
    #: How long the audio stays readable after acceptance, 0 once that time is over.
    keep_audio_ms: int = 0
    #: Log time (ms) of the last end of a service, 0 before the first. No rule of a command reads it.
    ended_at: int = 0

    def entry(self, service: Service) -> Entry | None:
        return next((entry for entry in self.entries if entry.service is service), None)

    @property
    def unbilled(self) -> tuple[Entry, ...]:
        """Successful entries that may not be in the ledger yet."""
        return tuple(entry for entry in self.entries if entry.state is EntryState.SUCCESS and not entry.billed)

    @property
    def unfinished(self) -> bool:
        return self.state in (JobState.ACCEPTED, JobState.PROCESSING)

    @property
    def keeps_audio(self) -> bool:
        """Whether the job is done and its audio is still readable."""
        return self.state is JobState.COMPLETED and self.keep_audio_ms > 0

    @property
    def can_be_heard(self) -> bool:
        """Whether the audio is there, and stays after the job is done."""
        return self.visible and self.keep_audio_ms > 0

    @property
    def needs_audio(self) -> bool:
        """Whether the parts are being read, or may be later."""
        return self.in_hand or self.keeps_audio

    @property
    def in_hand(self) -> bool:
        return self.unfinished or self.state is JobState.RECEIVING

    @property
    def unsettled(self) -> bool:
        """Whether audio is needed, a service has not ended, or something is not billed."""
        return self.needs_audio or bool(self.unbilled)

    @property
    def counted(self) -> bool:
        """Whether it counts towards its project's limit: unfinished, or not billed."""
        return self.in_hand or bool(self.unbilled)

    @property
    def visible(self) -> bool:
        return self.state in VISIBLE_STATES

    @property
    def ready(self) -> tuple[Service, ...]:
        """Services that have not ended and do not wait for another service of the job."""
        if not self.unfinished:
            return ()
        unended = [entry.service for entry in self.entries if not entry.ended]
        return tuple(service for service in unended if not set(NEEDS.get(service, ())).intersection(unended))

    @property
    def audio(self) -> range:
        return range(self.parts)

    @property
    def recent(self) -> tuple[AudioRow, ...]:
        return ()

    @property
    def progress(self) -> int:
        """A number that grows with the work."""
        return self.revision

    def due(self, lifetime_ms: int) -> int:
        """Return the log time (ms) before which neither the job nor its audio goes, as far as its commands say."""
        if self.state is JobState.RECEIVING:
            return self.touched + UPLOAD_IDLE_MS
        return self.created + min(lifetime_ms, self.keep_audio_ms or lifetime_ms)

    def terms(self, lifetime_ms: int) -> tuple[tuple[int, int], ...]:
        """Return since when (log time in ms) and how long (ms of service time) it, or its audio, may stay.

        Return () while a service has not ended, or the ledger lacks something.
        """
        if self.state is JobState.RECEIVING:
            return ((self.touched, UPLOAD_IDLE_MS),)
        if self.unfinished or self.unbilled:
            return ()
        if self.keep_audio_ms:
            return ((self.created, min(lifetime_ms, self.keep_audio_ms)),)
        return ((max(self.created, self.ended_at), lifetime_ms),)


ABSENT: Final = Verdict(404, error="Not Found")
_OTHER_UPLOAD: Final = Verdict(409, error="another request with this Idempotency-Key took over")
_OTHER_REQUEST: Final = Verdict(409, error="the Idempotency-Key was used for another request")
_REMOVED: Final = Verdict(409, error="the Idempotency-Key was used for a job that was removed")
_GONE: Final = (Effect.CANCEL, Effect.DROP_AUDIO, Effect.ERASE)


# --- commands -------------------------------------------------------------------------------------------------------


def _begin(head: JobHead | None, command: Part, arrival: Arrival) -> Step[JobHead]:
    if command.number:
        return Step(head, verdict=ABSENT)
    receiving = JobHead(JobState.RECEIVING, arrival.offset, arrival.at, command.upload, 1, len(command.data))
    return Step(receiving, (Effect.KEEP_AUDIO, Effect.WATCH))


def _part(head: JobHead, command: Part, arrival: Arrival) -> Step[JobHead]:
    if command.number == 0:
        again = JobHead(JobState.RECEIVING, arrival.offset, arrival.at, command.upload, 1, len(command.data))
        return Step(again, (Effect.DROP_AUDIO, Effect.KEEP_AUDIO))
    if command.upload != head.upload or command.number != head.parts:
        return Step(head, verdict=_OTHER_UPLOAD)
    received = head.received + len(command.data)
    grown = msgspec.structs.replace(
        head, command=arrival.offset, touched=arrival.at, parts=head.parts + 1, received=received
    )
    return Step(grown, (Effect.KEEP_AUDIO,))


def _accept(head: JobHead, command: Accepted, arrival: Arrival) -> Step[JobHead]:
    if command.upload != head.upload or command.parts != head.parts:
        return Step(head, verdict=_OTHER_UPLOAD)
    accepted = msgspec.structs.replace(
        head,
        state=JobState.ACCEPTED,
        command=arrival.offset,
        touched=arrival.at,
        created=arrival.at,
        entries=tuple(Entry(service, revision=1) for service in command.options.services),
        revision=1,
        digest=command.digest,
        keep_audio_ms=command.keep_audio_ms,
    )
    return Step(accepted, (Effect.KEEP_REQUEST, Effect.WATCH, Effect.WORK))


def _accepted_before(head: JobHead, command: Accepted, arrival: Arrival) -> Step[JobHead]:
    return Step(head, verdict=Verdict(200) if command.digest == head.digest else _OTHER_REQUEST)


def _remove(head: JobHead, command: Removed, arrival: Arrival) -> Step[JobHead]:
    rest = msgspec.structs.replace(
        head, state=JobState.REMOVED, command=arrival.offset, touched=arrival.at, entries=head.unbilled
    )
    return Step(rest, (*_GONE, Effect.BILL) if rest.entries else _GONE, Verdict(204))


def _overdue(head: JobHead, command: Overdue, arrival: Arrival) -> Step[JobHead]:
    """Release the audio of a job that keeps it, else remove the job, unless a command came since or it is not billed.

    The head keeps the command's offset, so that a redelivery after billing does not remove the job.
    """
    kept, drop = msgspec.structs.replace(head, command=arrival.offset), tuple[Effect, ...]()
    if command.seen == head.command:
        if head.keep_audio_ms:
            kept = msgspec.structs.replace(kept, keep_audio_ms=0)
            drop = (Effect.DROP_AUDIO,) if head.keeps_audio else ()
        elif not head.unbilled:
            return Step(None, (Effect.UNWATCH, *_GONE), Verdict(204))
    return Step(kept, (*drop, Effect.UNWATCH, Effect.WATCH), Verdict(409, error="the job is kept"))


def _removed_before(head: JobHead | None, command: Removed, arrival: Arrival) -> Step[JobHead]:
    # Erase again: the command may be a redelivery whose deletions never reached the changelog.
    return Step(head, _GONE, ABSENT)


def _overdue_before(head: None, command: Overdue, arrival: Arrival) -> Step[JobHead]:
    return Step(None, (Effect.UNWATCH, *_GONE), ABSENT)


Rule = Callable[..., Step[JobHead]]

TABLE: Final[Mapping[tuple[JobState, type], Rule]] = {
    (JobState.ABSENT, Part): _begin,
    (JobState.ABSENT, Accepted): refusal(ABSENT),
    (JobState.ABSENT, Removed): _removed_before,
    (JobState.ABSENT, Overdue): _overdue_before,
    (JobState.RECEIVING, Part): _part,
    (JobState.RECEIVING, Accepted): _accept,
    (JobState.RECEIVING, Removed): refusal(ABSENT),
    (JobState.RECEIVING, Overdue): _overdue,
    **{(state, Part): refusal(_OTHER_UPLOAD) for state in VISIBLE_STATES},
    **{(state, Accepted): _accepted_before for state in VISIBLE_STATES},
    **{(state, Removed): _remove for state in VISIBLE_STATES},
    **{(state, Overdue): _overdue for state in VISIBLE_STATES},
    (JobState.REMOVED, Part): refusal(_REMOVED),
    (JobState.REMOVED, Accepted): refusal(_REMOVED),
    (JobState.REMOVED, Removed): _removed_before,
    (JobState.REMOVED, Overdue): _overdue,
}


def state_of(head: JobHead | None) -> JobState:
    return JobState.ABSENT if head is None else head.state


def fold_command(head: JobHead | None, command: JobCommand, arrival: Arrival) -> Step[JobHead]:
    """Apply a command that was not folded before (`arrival.offset > head.command`)."""
    return TABLE[state_of(head), type(command)](head, command, arrival)
