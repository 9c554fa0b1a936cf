"""The rules of a session's commands: the effect of each command in each state.

`TABLE` has a rule for every (state, command). Sessions that never existed and deleted ones share the state ABSENT: ids
have up to 142 random bits and are never reused. Only derived ids (`Opened.derived`) can be asked for again, within an
hour, so their heads stay for that long as tombstones.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from topics import media
from topics.folding import Arrival, AudioRow, Effect, Step, Verdict, refusal
from topics.sessions.capture import MOST_NOTES, PAUSE_MS, Anchor, next_anchor, noted
from topics.sessions.records import (
    Chunk,
    Deleted,
    Expired,
    Failed,
    Metered,
    Opened,
    Renamed,
    Sealed,
    SessionCommand,
    SourceNoted,
    Tuned,
)
from topics.sessions.rules import SessionHead, SessionState, why_readonly

#: Chunks whose references a head holds, as many as a socket has under way.
MOST_RECENT: Final = 32
#: Limit on changes of a session's sound rules, which are all kept for the windows they apply to.
MOST_TUNED: Final = 64
OVER: Final = Verdict(400, error="the session has ended: its sound rules can no longer change")
TOO_OFTEN: Final = Verdict(400, error=f"sound_rule: changed {MOST_TUNED} times, which is the most")
NO_SOURCE: Final = Verdict(400, error="source: a session of type file has no source")
TOO_MANY_NOTES: Final = Verdict(429, error=f"source: a session takes {MOST_NOTES} notes an hour; this one is left out")
ABSENT: Final = Verdict(404, error="the session does not exist or was deleted")
_GONE: Final = (Effect.CANCEL, Effect.DROP_AUDIO, Effect.ERASE)


# --- commands -------------------------------------------------------------------------------------------------------


def _open(head: SessionHead | None, command: Opened, arrival: Arrival) -> Step[SessionHead]:
    opened = SessionHead(
        command.kind,
        command.total_size,
        arrival.at,
        arrival.offset,
        derived=command.derived,
        opened_at=arrival.at,
        byte_rate=media.byte_rate(command.content_type),
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
    anchor = _anchor(head, command, arrival) if head.byte_rate else None
    accepted = msgspec.structs.replace(
        head,
        touched=arrival.at,
        command=arrival.offset,
        state=SessionState.READONLY if full else SessionState.WRITABLE,
        next=head.next + 1,
        received=received,
        predicts=command.predict,
        recent=_with(head, arrival.row_of(command.data)),
        doubted=(sequence, arrival.digest) if arrival.given_up else head.doubted,
        anchor=anchor or head.anchor,
    )
    effects = [Effect.KEEP_AUDIO]
    if anchor is not None:
        effects.append(Effect.KEEP_ANCHOR)
    # A repeated upload without a number cannot be recognised.
    if command.idempotency and command.sequence is not None:
        effects.append(Effect.KEEP_RECEIPT)
    if full or head.kind == "stream":
        effects.append(Effect.WORK)
    return Step(accepted, tuple(effects), Verdict(200, accepted.next))


def _anchor(head: SessionHead, command: Chunk, arrival: Arrival) -> Anchor | None:
    """Return the anchor of capture times that a chunk of raw PCM makes, or None."""
    last, position, size = head.anchor, head.received * 1000 // head.byte_rate, len(command.data)
    if command.captured:
        last = last or Anchor(0, head.opened_at, told=False)
        return next_anchor(last, position, command.captured, True, arrival.offset)
    if head.kind == "file" or command.predict or (last is not None and last.told):
        return None
    # If its client tells no times, a stream goes on as its audio comes, and paused if that comes late.
    begun = arrival.at - size * 1000 // head.byte_rate
    if begun - (head.opened_at + position if last is None else last.at(position)) <= PAUSE_MS:
        return None
    return next_anchor(last or Anchor(0, head.opened_at, told=False), position, begun, False, arrival.offset)


def _with(head: SessionHead, chunk: AudioRow) -> tuple[AudioRow, ...]:
    """Return the `recent` references with the next chunk; if there are too many, the oldest gets a row."""
    # The windows of an earlier owner may be in the changelog, and the heads before them not.
    if head.kind == "file" or head.next < head.cursor.keep:
        return ()
    return (*head.recent, chunk)[-MOST_RECENT:]


def _refuse_chunk(head: SessionHead, command: Chunk, arrival: Arrival) -> Step[SessionHead]:
    first_answer = command.sequence is not None and _first_answer(head, command.sequence, command, arrival)
    return first_answer or Step(head, verdict=Verdict(403, head.next, why_readonly(head.error)))


def _first_answer(head: SessionHead, sequence: int, command: Chunk, arrival: Arrival) -> Step[SessionHead] | None:
    """Return the first answer to a repeated chunk that its sender may repeat; None for any other chunk.

    That is a chunk with an Idempotency-Key (409 if its bytes differ); and, once, a chunk that was answered uncertainly.
    """
    if sequence < head.next and head.doubted == (sequence, arrival.digest):
        told = msgspec.structs.replace(head, command=arrival.offset, doubted=head.doubted if arrival.given_up else None)
        return Step(told, verdict=Verdict(200, sequence + 1))
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
    return Step(tombstone(rest), effects, Verdict(204, head.next))


def tombstone(head: SessionHead) -> SessionHead | None:
    """Return what stays of a deleted session: all of its head until it is billed, then that its derived id is taken."""
    if head.unmetered:
        return head
    if not head.derived or head.touched < 0:
        return None
    return SessionHead(head.kind, None, head.touched, head.command, SessionState.DELETED, finished=True, derived=True)


def _expire(head: SessionHead, command: Expired, arrival: Arrival) -> Step[SessionHead]:
    if command.seen != head.command:
        return Step(head, (Effect.UNWATCH, Effect.WATCH), Verdict(409, head.next, "the session is in use"))
    step = _delete(head, command, arrival)
    watch = () if step.head is None else (Effect.WATCH,)
    return Step(step.head, (Effect.UNWATCH, *step.effects, *watch), step.verdict)


def _deleted_before(head: SessionHead | None, command: Deleted, arrival: Arrival) -> Step[SessionHead]:
    # Erase again: the command may be a redelivery whose deletions never reached the changelog.
    return Step(head, _GONE, ABSENT)


def _expired_before(head: None, command: Expired, arrival: Arrival) -> Step[SessionHead]:
    return Step(head, (Effect.UNWATCH, *_GONE), ABSENT)


def _forget(head: SessionHead, command: Expired, arrival: Arrival) -> Step[SessionHead]:
    """Remove a tombstone that is due, unless the ledger lacks some of the session: then `_meter` removes it."""
    if command.seen != head.command:
        return Step(head, (Effect.UNWATCH, Effect.WATCH), ABSENT)
    if head.unmetered:
        due = msgspec.structs.replace(head, touched=-1, command=arrival.offset)
        return Step(due, (Effect.UNWATCH,), ABSENT)
    return Step(None, (Effect.UNWATCH, *_GONE), ABSENT)


def _fail(head: SessionHead, command: Failed, arrival: Arrival) -> Step[SessionHead]:
    # It is a former owner's if there are fewer windows, or all: then this one has come, or will come, to the end.
    if head.ended or head.windows < command.windows:
        return Step(head)
    failed = msgspec.structs.replace(
        head,
        state=SessionState.READONLY,
        error=command.error,
        finished=True,
        recent=(),
        touched=arrival.at,
        noted=arrival.offset,
    )
    effects = (Effect.RECALL, Effect.DROP_AUDIO)
    return Step(failed, (*effects, Effect.BILL) if failed.unmetered else effects)


def _meter(head: SessionHead, command: Metered, arrival: Arrival) -> Step[SessionHead]:
    if command.windows <= head.metered:
        return Step(head)
    silent = tuple(windows for windows in head.silent if windows[1] > command.windows)
    metered = msgspec.structs.replace(head, metered=command.windows, silent=silent, noted=arrival.offset)
    if head.state is SessionState.DELETED and not metered.unmetered:
        return Step(tombstone(metered), (Effect.ERASE,))
    return Step(metered, (Effect.BILL,) if metered.unmetered else ())


def _tune(head: SessionHead, command: Tuned, arrival: Arrival) -> Step[SessionHead]:
    if head.ended:
        return Step(head, verdict=OVER)
    if head.tuned >= MOST_TUNED:
        return Step(head, verdict=TOO_OFTEN)
    tuned = msgspec.structs.replace(head, tuned=head.tuned + 1, noted=arrival.offset)
    return Step(tuned, (Effect.KEEP_REQUEST,), Verdict(204, head.next))


def _rename(head: SessionHead, command: Renamed, arrival: Arrival) -> Step[SessionHead]:
    renamed = msgspec.structs.replace(head, noted=arrival.offset)
    return Step(renamed, (Effect.KEEP_REQUEST,), Verdict(204, head.next))


def _note_source(head: SessionHead, command: SourceNoted, arrival: Arrival) -> Step[SessionHead]:
    if head.kind == "file":
        return Step(head, verdict=NO_SOURCE)
    told = command.seen < 0
    if not told and not _is_so(head, command):
        return Step(head)
    source, is_too_many = noted(head.source, command.event, command.at or arrival.at, told, arrival.at)
    after = msgspec.structs.replace(head, source=source, noted=arrival.offset)
    if is_too_many:
        return Step(after, verdict=TOO_MANY_NOTES)
    return Step(after, (Effect.KEEP_REQUEST, Effect.WORK), Verdict(204, head.next))


def _is_so(head: SessionHead, command: SourceNoted) -> bool:
    """Return whether what the service noticed of a source is not noted yet, and no chunk came meanwhile."""
    is_lost = head.source is not None and head.source.event == "source.lost"
    return is_lost != (command.event == "source.lost") and (is_lost or command.seen == head.command)


def _refuse_note(head: SessionHead, command: SourceNoted, arrival: Arrival) -> Step[SessionHead]:
    return Step(head, verdict=Verdict(403, head.next, why_readonly(head.error)))


Rule = Callable[..., Step[SessionHead]]

_NOBODY: Final = refusal(ABSENT)
#: The rules of each command in the order of the states: absent, writable, readonly, deleted.
_RULES: Final[Mapping[type, tuple[Rule, Rule, Rule, Rule]]] = {
    Opened: (_open, _opened_twice, _opened_twice, _opened_twice),
    Chunk: (_NOBODY, _judge_chunk, _refuse_chunk, _NOBODY),
    Sealed: (_NOBODY, _seal, _sealed_before, _NOBODY),
    Deleted: (_deleted_before, _delete, _delete, _deleted_before),
    Expired: (_expired_before, _expire, _expire, _forget),
    Failed: (_NOBODY, _fail, _fail, _NOBODY),
    Metered: (_NOBODY, _meter, _meter, _meter),
    Tuned: (_NOBODY, _tune, _tune, _NOBODY),
    Renamed: (_NOBODY, _rename, _rename, _NOBODY),
    SourceNoted: (_NOBODY, _note_source, _refuse_note, _NOBODY),
}
TABLE: Final[Mapping[tuple[SessionState, type], Rule]] = {
    (state, command): rule for command, rules in _RULES.items() for state, rule in zip(SessionState, rules, strict=True)
}


def state_of(head: SessionHead | None) -> SessionState:
    return SessionState.ABSENT if head is None else head.state


def fold_command(head: SessionHead | None, command: SessionCommand, arrival: Arrival) -> Step[SessionHead]:
    """Apply a command that was not folded before (`arrival.offset > head.command`)."""
    return TABLE[state_of(head), type(command)](head, command, arrival)


def foresee(head: SessionHead | None, command: SessionCommand) -> Verdict | None:
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
    if head.doubted is not None and command.sequence == head.doubted[0]:
        return None
    if head.state is SessionState.READONLY or (command.sequence is not None and command.sequence < head.next):
        return fold_command(head, command, Arrival(0, 0)).verdict
    return None
