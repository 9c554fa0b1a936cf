"""The law of an audio session: what each command does in each state.

Theory. A session is a fold of its commands in log order. `TABLE` names a rule for every (state, command); a rule is
a pure function of the session's head, the command and its log time, and returns a `Step`: the new head (None once
the session is gone), the verdict that the client gets, and the effects that the stream has to carry out. Nothing
here reads a clock, a table or a socket, so a test can push a session through any history.

A session that never was and one that was deleted are the same state, ABSENT: ids carry 142 random bits and are never
given out twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from topics.records import Chunk, Command, Cursor, Deleted, Expired, Kind, Opened, Sealed


class State(StrEnum):
    """States of a session."""

    ABSENT = "absent"
    WRITABLE = "writable"
    READONLY = "readonly"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The part of a session that changes, small because it is written for every chunk."""

    kind: Kind
    total_size: int | None
    #: Log time (ms) of the last chunk, or of the opening.
    touched: int
    #: Offset of the command that was folded last: a command at or below it was folded before.
    command: int
    state: State = State.WRITABLE
    #: Sequence number of the next chunk.
    next: int = 0
    received: int = 0
    #: True once `/predict` was used, False once a chunk was uploaded: a session takes one or the other.
    predicts: bool | None = None
    error: str | None = None
    #: Windows that can be read.
    windows: int = 0
    cursor: Cursor = Cursor()
    #: True when no further window will come.
    finished: bool = False

    @property
    def in_progress(self) -> bool:
        """True while uploaded chunks still wait for inference."""
        if self.finished or self.error is not None:
            return False
        return self.cursor.chunks < self.next or self.state is State.READONLY


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of an upload that had an Idempotency-Key."""

    key: bytes
    digest: bytes


class Verdict(msgspec.Struct, frozen=True):
    """The answer to a command: an HTTP status, the next chunk number, and a message when refused."""

    status: int
    next: int = 0
    error: str | None = None


class Effect(StrEnum):
    """What the stream does besides writing the head."""

    KEEP_OPENED = "keep the opening record"
    KEEP_CHUNK = "write the chunk row: log offset, length, hash"
    KEEP_RECEIPT = "remember the idempotency key of the chunk"
    ANALYSE = "tell the analyser that there is work"
    WATCH = "enter the session in the expiry index"
    UNWATCH = "drop the entry of the expiry index that led here"
    ERASE = "delete every row of the session and cancel its inference"


class Step(msgspec.Struct, frozen=True):
    """The outcome of one command."""

    head: Head | None
    verdict: Verdict
    effects: tuple[Effect, ...] = ()


class Arrival(msgspec.Struct, frozen=True):
    """Where and when a command stands in the log, and what is known of an earlier upload of the same chunk."""

    offset: int
    #: Log time in milliseconds.
    at: int
    digest: bytes = b""
    receipt: Receipt | None = None


ABSENT: Final = Verdict(404, error="the session does not exist or was deleted")


def _open(head: Head | None, command: Opened, arrival: Arrival) -> Step:
    opened = Head(command.kind, command.total_size, touched=arrival.at, command=arrival.offset)
    return Step(opened, Verdict(200), (Effect.KEEP_OPENED, Effect.WATCH))


def _opened_twice(head: Head, command: Opened, arrival: Arrival) -> Step:
    return Step(head, Verdict(409, head.next, "the session id is taken"))


def _absent(head: Head | None, command: Command, arrival: Arrival) -> Step:
    return Step(None, ABSENT)


def _chunk(head: Head, command: Chunk, arrival: Arrival) -> Step:
    sequence = head.next if command.sequence is None else command.sequence
    if repeated := _receipt(head, sequence, command, arrival):
        return repeated
    if command.predict and head.kind == "file":
        return Step(head, Verdict(400, head.next, "predict needs a session of type stream"))
    if head.predicts is not None and head.predicts is not command.predict:
        used = "windows through predict" if head.predicts else "chunks"
        return Step(head, Verdict(400, head.next, f"the session takes {used}, not both"))
    if sequence != head.next:
        return Step(head, Verdict(409, head.next, f"chunk_sequence is {sequence}, the next one is {head.next}"))
    received = head.received + len(command.data)
    full = head.total_size is not None and received >= head.total_size
    accepted = msgspec.structs.replace(
        head,
        touched=arrival.at,
        command=arrival.offset,
        state=State.READONLY if full else State.WRITABLE,
        next=head.next + 1,
        received=received,
        predicts=command.predict,
    )
    effects = [Effect.KEEP_CHUNK]
    # An upload that names no number cannot be recognised when it is repeated.
    if command.idempotency and command.sequence is not None:
        effects.append(Effect.KEEP_RECEIPT)
    if full or head.kind == "stream":
        effects.append(Effect.ANALYSE)
    return Step(accepted, Verdict(200, accepted.next), tuple(effects))


def _late_chunk(head: Head, command: Chunk, arrival: Arrival) -> Step:
    repeated = command.sequence is not None and _receipt(head, command.sequence, command, arrival)
    return repeated or Step(head, Verdict(403, head.next, "the session is readonly and takes no more chunks"))


def _receipt(head: Head, sequence: int, command: Chunk, arrival: Arrival) -> Step | None:
    """The first answer again, for an upload that is known by its Idempotency-Key."""
    known = arrival.receipt
    if sequence >= head.next or known is None or not command.idempotency or known.key != command.idempotency:
        return None
    if known.digest != arrival.digest:
        return Step(head, Verdict(409, head.next, "the Idempotency-Key was used for a chunk with other bytes"))
    return Step(head, Verdict(200, sequence + 1))


def _seal(head: Head, command: Sealed, arrival: Arrival) -> Step:
    sealed = msgspec.structs.replace(head, state=State.READONLY, command=arrival.offset)
    return Step(sealed, Verdict(204, head.next), (Effect.ANALYSE,))


def _sealed_before(head: Head, command: Sealed, arrival: Arrival) -> Step:
    return Step(head, Verdict(204, head.next))


def _delete(head: Head, command: Deleted, arrival: Arrival) -> Step:
    return Step(None, Verdict(204, head.next), (Effect.ERASE,))


def _expire(head: Head, command: Expired, arrival: Arrival) -> Step:
    if arrival.at - head.touched > command.idle_ms:
        return Step(None, Verdict(204, head.next), (Effect.UNWATCH, Effect.ERASE))
    return Step(head, Verdict(409, head.next, "the session is in use"), (Effect.UNWATCH, Effect.WATCH))


def _deleted_before(head: Head | None, command: Deleted, arrival: Arrival) -> Step:
    # Erased once more: the command may be a redelivery whose deletions never reached the changelog.
    return Step(None, ABSENT, (Effect.ERASE,))


def _expired_before(head: Head | None, command: Expired, arrival: Arrival) -> Step:
    return Step(None, ABSENT, (Effect.UNWATCH, Effect.ERASE))


Rule = Callable[..., Step]

TABLE: Final[Mapping[tuple[State, type], Rule]] = {
    (State.ABSENT, Opened): _open,
    (State.ABSENT, Chunk): _absent,
    (State.ABSENT, Sealed): _absent,
    (State.ABSENT, Deleted): _deleted_before,
    (State.ABSENT, Expired): _expired_before,
    (State.WRITABLE, Opened): _opened_twice,
    (State.WRITABLE, Chunk): _chunk,
    (State.WRITABLE, Sealed): _seal,
    (State.WRITABLE, Deleted): _delete,
    (State.WRITABLE, Expired): _expire,
    (State.READONLY, Opened): _opened_twice,
    (State.READONLY, Chunk): _late_chunk,
    (State.READONLY, Sealed): _sealed_before,
    (State.READONLY, Deleted): _delete,
    (State.READONLY, Expired): _expire,
}


def state_of(head: Head | None) -> State:
    """Return the state of a session whose head is `head`, None where there is none."""
    return State.ABSENT if head is None else head.state


def fold(head: Head | None, command: Command, arrival: Arrival) -> Step:
    """Apply one command that was not folded before (`arrival.offset > head.command`)."""
    return TABLE[state_of(head), type(command)](head, command, arrival)


def foresee(head: Head | None, command: Command) -> Verdict | None:
    """Return the refusal that is certain already, None where the fold has to decide.

    Sessions never come back, never become writable again, and chunk numbers only grow: these refusals cannot turn
    into acceptance while a command waits in the log, so the edge gives them without writing to the log.
    """
    if head is None:
        return None if isinstance(command, Opened) else ABSENT
    if not isinstance(command, Chunk) or command.idempotency:
        return None
    if head.state is State.READONLY:
        return TABLE[State.READONLY, Chunk](head, command, Arrival(0, 0)).verdict
    if command.sequence is not None and command.sequence < head.next:
        return TABLE[State.WRITABLE, Chunk](head, command, Arrival(0, 0)).verdict
    return None
