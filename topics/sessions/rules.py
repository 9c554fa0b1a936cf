"""The rules of a session: the effect of each command and result in each state.

`TABLE` has a rule for every (state, command). Sessions that never existed and deleted ones share the state ABSENT: ids
have up to 142 random bits and are never reused. Only derived ids (`Opened.derived`) can be asked for again, within an
hour, so their heads stay for that long as tombstones.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from topics.errors import RecordError
from topics.folding import Arrival, AudioRow, Effect, Step, Verdict, first_recent, refusal
from topics.sessions.records import (
    Begun,
    Chunk,
    Cursor,
    Deleted,
    Expired,
    Failed,
    Metered,
    Opened,
    Sealed,
    SessionCommand,
    SessionKind,
    SessionResult,
    Tuned,
)
from topics.sessions.sounds import SoundRules

#: Windows of one metering step: an open session is billed each time it has this many more.
METER_WINDOWS: Final = 1200
#: Chunks whose references a head holds, as many as a socket has under way.
MOST_RECENT: Final = 32
#: Most time (ms) for the upload of a file in chunks.
FILE_MS: Final = 24 * 3_600_000
#: Time (ms) for which the derived id of a deleted session stays taken.
TOMBSTONE_MS: Final = 3_600_000


class SessionState(StrEnum):
    """States of a session."""

    ABSENT = "absent"
    WRITABLE = "writable"
    READONLY = "readonly"
    #: Deleted, but remembered until all of it is in the ledger, and if its id is derived for `TOMBSTONE_MS`.
    DELETED = "deleted"


#: States in which a session is listed. Their order is part of the lists' keys: add only at the end.
LISTED_STATES: Final = (SessionState.WRITABLE, SessionState.READONLY)


class SessionHead(msgspec.Struct, frozen=True, array_like=True):
    """The part of a session that changes; small, because it is written for every chunk."""

    kind: SessionKind
    total_size: int | None
    #: Log time (ms) of the last chunk, the opening or the deletion; -1 if only the ledger still needs the session.
    touched: int
    #: Offset of the last folded command.
    command: int
    state: SessionState = SessionState.WRITABLE
    #: Sequence number of the next chunk.
    next: int = 0
    received: int = 0
    #: True once `/predict` was used, False once a chunk was uploaded: a session accepts only one kind.
    predicts: bool | None = None
    error: str | None = None
    #: Number of readable windows.
    windows: int = 0
    cursor: Cursor = Cursor()
    #: True if no more windows will follow.
    finished: bool = False
    #: Unused, as `begun_by`: heads of earlier versions counted `Begun` records here.
    begun: int = 0
    #: Windows in the ledger; tombstones of an earlier version have None for 0.
    metered: int | None = 0
    begun_by: tuple[str, ...] = ()
    #: As in `Opened`.
    derived: bool = False
    #: Log time (ms) of the opening; 0 if it is of an earlier version.
    opened_at: int = 0
    #: References to the newest chunks of a stream, which have no rows: a row that is deleted a moment later costs two
    #: records of the changelog.
    recent: tuple[AudioRow, ...] = ()

    @property
    def in_progress(self) -> bool:
        """Whether uploaded chunks still wait for analysis."""
        return not self.ended and (self.cursor.chunks < self.next or self.state is SessionState.READONLY)

    @property
    def analysable(self) -> bool:
        """Whether the analyser has work: in a stream with each chunk, in a file once it is complete."""
        return self.in_progress and (self.kind == "stream" or self.state is SessionState.READONLY)

    @property
    def ending(self) -> bool:
        """Whether all chunks of a readonly stream are analysed, so that its end follows at once."""
        return self.kind == "stream" and self.in_progress and self.cursor.chunks >= self.next

    @property
    def ended(self) -> bool:
        """Whether no more windows will follow, for whatever reason."""
        return self.finished or self.error is not None

    @property
    def meterable(self) -> int:
        """Number of windows due in the ledger now: whole steps, and at the end the rest."""
        return self.windows if self.ended else self.windows - self.windows % METER_WINDOWS

    @property
    def unmetered(self) -> bool:
        """Whether the ledger may lack windows that are due."""
        return (self.metered or 0) < self.meterable

    @property
    def unsettled(self) -> bool:
        """Whether windows may follow, or some must still go to the ledger."""
        return not self.ended or self.unmetered

    @property
    def counted(self) -> bool:
        return self.unsettled

    @property
    def audio(self) -> range:
        """Numbers of the chunks that a later window may need."""
        return range(self.cursor.keep, self.next)

    def due(self, lifetime_ms: int) -> int:
        """Return the log time (ms) after which the session expires: `lifetime_ms` after its last chunk."""
        if self.state is SessionState.DELETED:
            return self.touched + TOMBSTONE_MS
        idle = self.touched + lifetime_ms
        # Its audio stays on the log until the file is complete.
        is_arriving = self.kind == "file" and self.state is SessionState.WRITABLE and self.opened_at
        return min(idle, self.opened_at + FILE_MS) if is_arriving else idle


#: Limit on changes of a session's sound rules, which are all kept for the windows they apply to.
MOST_TUNED: Final = 64
TOO_OFTEN: Final = Verdict(400, error=f"sound_rule: changed {MOST_TUNED} times, which is the most")
OVER: Final = Verdict(400, error="the session has ended: its sound rules can no longer change")
ABSENT: Final = Verdict(404, error="the session does not exist or was deleted")
_GONE: Final = (Effect.CANCEL, Effect.DROP_AUDIO, Effect.ERASE)


# --- commands -------------------------------------------------------------------------------------------------------


def _open(head: SessionHead | None, command: Opened, arrival: Arrival) -> Step[SessionHead]:
    opened = SessionHead(
        command.kind,
        command.total_size,
        touched=arrival.at,
        command=arrival.offset,
        derived=command.derived,
        opened_at=arrival.at,
    )
    return Step(opened, (Effect.KEEP_REQUEST, Effect.WATCH))


def _opened_twice(head: SessionHead, command: Opened, arrival: Arrival) -> Step[SessionHead]:
    return Step(head, verdict=Verdict(409, head.next, "the session id is taken"))


def _judge_chunk(head: SessionHead, command: Chunk, arrival: Arrival) -> Step[SessionHead]:
    sequence = head.next if command.sequence is None else command.sequence
    if first_answer := _first_answer(head, sequence, command, arrival):
        return first_answer
    if command.predict and head.kind == "file":
        return Step(head, verdict=Verdict(400, head.next, "predict needs a session of type stream"))
    if head.predicts is not None and head.predicts is not command.predict:
        used, other = ("/predict", "receive chunks") if head.predicts else ("chunks", "use /predict")
        reason = f"this session already receives {used}, so it cannot {other}"
        return Step(head, verdict=Verdict(400, head.next, reason))
    if sequence != head.next:
        return Step(head, verdict=Verdict(409, head.next, f"chunk_sequence is {sequence}, the next one is {head.next}"))
    received = head.received + len(command.data)
    full = head.total_size is not None and received >= head.total_size
    accepted = msgspec.structs.replace(
        head,
        touched=arrival.at,
        command=arrival.offset,
        state=SessionState.READONLY if full else SessionState.WRITABLE,
        next=head.next + 1,
        received=received,
        predicts=command.predict,
        recent=_with(head, arrival.row_of(command.data)),
    )
    effects = [Effect.KEEP_AUDIO]
    # A repeated upload without a number cannot be recognised.
    if command.idempotency and command.sequence is not None:
        effects.append(Effect.KEEP_RECEIPT)
    if full or head.kind == "stream":
        effects.append(Effect.WORK)
    return Step(accepted, tuple(effects), Verdict(200, accepted.next))


def _with(head: SessionHead, chunk: AudioRow) -> tuple[AudioRow, ...]:
    """Return the `recent` references with the next chunk; if there are too many, the oldest gets a row."""
    # If another owner's results were folded before its commands, they have used the audio already.
    if head.kind == "file" or head.next < head.cursor.keep:
        return ()
    return (*head.recent, chunk)[-MOST_RECENT:]


def _after(head: SessionHead, keep: int) -> tuple[AudioRow, ...]:
    """Return the `recent` references from chunk number `keep` on."""
    return head.recent[max(0, keep - first_recent(head)) :]


def _refuse_chunk(head: SessionHead, command: Chunk, arrival: Arrival) -> Step[SessionHead]:
    first_answer = command.sequence is not None and _first_answer(head, command.sequence, command, arrival)
    return first_answer or Step(head, verdict=Verdict(403, head.next, why_readonly(head.error)))


def why_readonly(error: str | None) -> str:
    """Return why a readonly session, which may have an error, refuses a chunk."""
    return "the session is readonly and takes no more chunks" + (f": {error}" if error else "")


def _first_answer(head: SessionHead, sequence: int, command: Chunk, arrival: Arrival) -> Step[SessionHead] | None:
    """Return the first answer to a repeated Idempotency-Key, or 409 for different bytes; None if it is not repeated."""
    receipt = arrival.receipt
    if sequence >= head.next or receipt is None or not command.idempotency or receipt.key != command.idempotency:
        return None
    if receipt.digest != arrival.digest:
        return Step(head, verdict=Verdict(409, head.next, "the Idempotency-Key was used for a chunk with other bytes"))
    return Step(head, verdict=Verdict(200, sequence + 1))


def _seal(head: SessionHead, command: Sealed, arrival: Arrival) -> Step[SessionHead]:
    sealed = msgspec.structs.replace(head, state=SessionState.READONLY, command=arrival.offset)
    return Step(sealed, (Effect.WORK,), Verdict(204, head.next))


def _sealed_before(head: SessionHead, command: Sealed, arrival: Arrival) -> Step[SessionHead]:
    return Step(head, verdict=Verdict(204, head.next))


def _delete(head: SessionHead, command: Deleted | Expired, arrival: Arrival) -> Step[SessionHead]:
    rest = msgspec.structs.replace(
        head, state=SessionState.DELETED, touched=arrival.at, command=arrival.offset, finished=True, recent=()
    )
    effects = (*_GONE, Effect.BILL) if rest.unmetered else _GONE
    return Step(_tombstone(rest), effects, Verdict(204, head.next))


def _tombstone(head: SessionHead) -> SessionHead | None:
    """Return what stays of a deleted session: all of its head until it is billed, then that its derived id is taken."""
    if head.unmetered:
        return head
    if not head.derived or head.touched < 0:
        return None
    return SessionHead(head.kind, None, head.touched, head.command, SessionState.DELETED, finished=True, derived=True)


def _expire(head: SessionHead, command: Expired, arrival: Arrival) -> Step[SessionHead]:
    if arrival.at > head.due(command.idle_ms):
        step = _delete(head, command, arrival)
        watch = () if step.head is None else (Effect.WATCH,)
        return Step(step.head, (Effect.UNWATCH, *step.effects, *watch), step.verdict)
    return Step(head, (Effect.UNWATCH, Effect.WATCH), Verdict(409, head.next, "the session is in use"))


def _deleted_before(head: SessionHead | None, command: Deleted, arrival: Arrival) -> Step[SessionHead]:
    # Erase again: the command may be a redelivery whose deletions never reached the changelog.
    return Step(head, _GONE, ABSENT)


def _expired_before(head: None, command: Expired, arrival: Arrival) -> Step[SessionHead]:
    return Step(head, (Effect.UNWATCH, *_GONE), ABSENT)


def _forget(head: SessionHead, command: Expired, arrival: Arrival) -> Step[SessionHead]:
    """Remove a tombstone that is due, unless the ledger lacks some of the session: then `_meter` removes it."""
    if arrival.at <= head.due(command.idle_ms):
        return Step(head, (Effect.UNWATCH, Effect.WATCH), ABSENT)
    if head.unmetered:
        due = msgspec.structs.replace(head, touched=-1, command=arrival.offset)
        return Step(due, (Effect.UNWATCH,), ABSENT)
    return Step(None, (Effect.UNWATCH, *_GONE), ABSENT)


Rule = Callable[..., Step[SessionHead]]

TABLE: Final[Mapping[tuple[SessionState, type], Rule]] = {
    (SessionState.ABSENT, Opened): _open,
    (SessionState.ABSENT, Chunk): refusal(ABSENT),
    (SessionState.ABSENT, Sealed): refusal(ABSENT),
    (SessionState.ABSENT, Deleted): _deleted_before,
    (SessionState.ABSENT, Expired): _expired_before,
    (SessionState.WRITABLE, Opened): _opened_twice,
    (SessionState.WRITABLE, Chunk): _judge_chunk,
    (SessionState.WRITABLE, Sealed): _seal,
    (SessionState.WRITABLE, Deleted): _delete,
    (SessionState.WRITABLE, Expired): _expire,
    (SessionState.READONLY, Opened): _opened_twice,
    (SessionState.READONLY, Chunk): _refuse_chunk,
    (SessionState.READONLY, Sealed): _sealed_before,
    (SessionState.READONLY, Deleted): _delete,
    (SessionState.READONLY, Expired): _expire,
    (SessionState.DELETED, Opened): _opened_twice,
    (SessionState.DELETED, Chunk): refusal(ABSENT),
    (SessionState.DELETED, Sealed): refusal(ABSENT),
    (SessionState.DELETED, Deleted): _deleted_before,
    (SessionState.DELETED, Expired): _forget,
}


def state_of(head: SessionHead | None) -> SessionState:
    return SessionState.ABSENT if head is None else head.state


def fold_command(head: SessionHead | None, command: SessionCommand, arrival: Arrival) -> Step[SessionHead]:
    """Apply a command that was not folded before (`arrival.offset > head.command`)."""
    return TABLE[state_of(head), type(command)](head, command, arrival)


def foresee(head: SessionHead | None, command: SessionCommand | Tuned) -> Verdict | None:
    """Return a refusal that is already certain, None if the fold must decide.

    Sessions never come back or become writable again, and chunk numbers only grow. So these refusals cannot turn into
    acceptance while a command waits in the log, and the edge returns them without a write to the log.
    """
    if head is None or head.state is SessionState.DELETED:
        return None if isinstance(command, Opened) else ABSENT
    if isinstance(command, Tuned):
        return OVER if head.ended else None
    if not isinstance(command, Chunk) or command.idempotency:
        return None
    if head.state is SessionState.READONLY:
        return TABLE[SessionState.READONLY, Chunk](head, command, Arrival(0, 0)).verdict
    if command.sequence is not None and command.sequence < head.next:
        return TABLE[SessionState.WRITABLE, Chunk](head, command, Arrival(0, 0)).verdict
    return None


# --- results --------------------------------------------------------------------------------------------------------


def fold_result(head: SessionHead | None, result: SessionResult, windows: int) -> Step[SessionHead]:
    """Apply a result with `windows` windows, new or redelivered; raise RecordError if it leaves a gap."""
    if head is None:
        return Step(None, verdict=ABSENT)
    if isinstance(result, Tuned):
        refused = foresee(head, result)
        return Step(head, verdict=refused) if refused else Step(head, (Effect.KEEP_REQUEST,), Verdict(204, head.next))
    if isinstance(result, Metered):
        return _meter(head, result)
    if isinstance(result, Begun) or head.state is SessionState.DELETED:
        return Step(head)
    if isinstance(result, Failed):
        if head.finished and head.error is None:
            return Step(head)  # A former owner wrote it late; the next one has analysed everything.
        failed = msgspec.structs.replace(
            head, state=SessionState.READONLY, error=result.error, finished=True, recent=()
        )
        return Step(failed, (Effect.DROP_AUDIO, Effect.BILL) if failed.unmetered else (Effect.DROP_AUDIO,))
    if head.error is not None:
        # Results from before the failure may be redelivered after it.
        return Step(head, (Effect.KEEP_RESULT,) if result.first + windows <= head.windows else ())
    if result.first > head.windows:
        raise RecordError(f"windows {result.first}.. arrived, but only {head.windows} are known")
    end = result.first + windows
    if end < head.windows or result.cursor.chunks < head.cursor.chunks:
        return Step(head, (Effect.KEEP_RESULT,))
    finished = head.finished or result.final
    recent = _after(head, result.cursor.keep)
    grown = msgspec.structs.replace(head, windows=end, cursor=result.cursor, finished=finished, recent=recent)
    return Step(grown, (Effect.KEEP_RESULT, Effect.BILL) if grown.unmetered else (Effect.KEEP_RESULT,))


def _meter(head: SessionHead, result: Metered) -> Step[SessionHead]:
    if result.windows <= (head.metered or 0):
        return Step(head)
    metered = msgspec.structs.replace(head, metered=result.windows)
    if head.state is SessionState.DELETED and not metered.unmetered:
        return Step(_tombstone(metered), (Effect.ERASE,))
    return Step(metered, (Effect.BILL,) if metered.unmetered else ())


def tuned(opened: Opened, change: Tuned, first: int) -> Opened:
    """Return an opening with new rules from a window on, or unchanged if it has them or had too many changes."""
    known = opened.rules
    if len(opened.tuned) >= MOST_TUNED or any(one.command == change.command for one in known):
        return opened
    rule = known[-1].rule if change.sound_rule is None else change.sound_rule
    by_name = known[-1].by_name if change.sound_rules is None else change.sound_rules
    return msgspec.structs.replace(opened, tuned=(*opened.tuned, SoundRules(first, change.command, rule, by_name)))
