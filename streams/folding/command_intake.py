"""The common part of the intakes of sessions and jobs, which fold commands into rows and give verdicts."""

from abc import abstractmethod
from functools import partial
from typing import Any, Generic, TypeVar

import xxhash

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.draft import Draft
from streams.folding.fold import Announce, Fold
from streams.folding.head_store import H
from streams.folding.record import id_of
from streams.log import StoredRecord
from topics import keys, rows
from topics.errors import Unavailable
from topics.folding import Arrival, AudioRow, Effect, Receipt, Step, Verdict, first_recent
from topics.jobs.records import Accepted, JobCommand, Overdue, Part, Removed
from topics.sessions.records import (
    Chunk,
    Deleted,
    Expired,
    Opened,
    Renamed,
    Sealed,
    SessionCommand,
    SessionNote,
    SourceNoted,
    Tuned,
)

C = TypeVar("C", bound=SessionCommand | JobCommand)


class Intake(Fold[H], Generic[H, C]):
    """Folds the records of a command topic. Never decodes audio, so no verdict waits for an analysis. Loop only."""

    def __init__(self, verdicts: Verdicts, lifetime_ms: int, announce: Announce) -> None:
        """Start with an empty batch; `lifetime_ms` is passed to `Head.due`."""
        super().__init__(announce, verdicts)
        self.verdicts = verdicts
        self.lifetime_ms = lifetime_ms

    @abstractmethod
    def step(self, head: H | None, command: C, arrival: Arrival) -> Step[H]: ...

    def folded(self, head: H, command: C) -> int:
        """Return the offset up to which commands of this kind are folded."""
        return head.command

    def last(self, head: H) -> int:
        """Return the offset of the last folded command."""
        return head.command

    def fold(self, draft: Draft[H], record: StoredRecord) -> None:
        command: C = self.content(record)
        id = id_of(record)
        head = draft.head(id)
        arrival = self._arrival(draft, id, command, record)
        if head is not None and arrival.offset <= self.folded(head, command):
            self._fold_again(draft, id, head, command, arrival)
            return
        if head is None and isinstance(command, Deleted | Expired | Removed | Overdue):
            draft.mark_index_stale()
        step = self.step(head, command, arrival)
        if step.head is not head and step.head is not None:
            draft.put_head(id, step.head)
        for effect in step.effects:
            match effect, command, step.head:
                # The windows of an earlier owner may be in the changelog, and the heads before them not.
                case Effect.KEEP_AUDIO, Chunk() | Part(), new if new is not None and new.audio:
                    self.keep_audio(draft, id, new.audio[-1], command.data, arrival)
                    _write_row(draft, id, head, new, command.data, arrival)
                case Effect.KEEP_RECEIPT, Chunk(sequence=int() as number), _:
                    receipt = Receipt(command.idempotency, arrival.digest)
                    draft.put(draft.store.row_key(id, keys.RECEIPT, number), rows.encode(receipt))
                case Effect.KEEP_REQUEST, Opened() | Accepted() | Tuned() | Renamed() | SourceNoted(), _:
                    self.keep_request(draft, id, command, arrival)
                case Effect.WATCH, _, new if new is not None:
                    self._watch(draft, id, new)
                case Effect.UNWATCH, Expired() | Overdue(), _:
                    draft.delete(draft.store.due_key(command.due, id))
                case _:
                    self.carry_out(draft, id, effect, head, step.head)
        if step.effects or step.head is not head:
            self.changes.changed[id] = None
        self.answer(draft, id, command, step.verdict)

    def answer(self, draft: Draft[H], id: str, command: C, verdict: Verdict) -> None:
        """Resolve a verdict once the draft is written; that of a deletion when no stand-by shows the id any more."""
        if isinstance(command, Deleted | Removed):
            self.answer_logged(draft, draft.store.row_key(id, keys.HEAD), command, verdict)
        else:
            self._answers.append((command.command, verdict))

    def answer_logged(self, draft: Draft[H], key: bytes, command: C, verdict: Verdict) -> None:
        """Resolve a verdict once the changelog has a row of the draft, or its deletion."""
        logged = partial(self.verdicts.resolve, command.command, verdict)
        draft.after(partial(draft.store.partition.write_again, [key], logged))

    def _fold_again(self, draft: Draft[H], id: str, head: H, command: C, arrival: Arrival) -> None:
        """Rewrite the rows of a command folded before the last stop, because the changelog may lack them.

        The head follows with its last command: rows of commands below it could not be recreated if the process died
        before they reach the changelog.
        """
        if arrival.offset == self.last(head):
            draft.put_head(id, head, again=True)
        if draft.store.is_erased(head):
            draft.mark_index_stale()
        self.write_again(draft, id, head, command, arrival)
        if isinstance(command, Expired | Overdue):
            draft.delete(draft.store.due_key(command.due, id))
        if not isinstance(command, Chunk | Sealed | SessionNote) and not (isinstance(command, Part) and command.number):
            self._watch(draft, id, head)
        self.changes.changed[id] = self.changes.work[id] = None
        # Somebody waits only if its table was written, and the changelog not: the verdict is lost.
        self._answers.append(
            (command.command, Unavailable("the verdict is lost; the write may have succeeded", uncertain=True))
        )

    def _arrival(self, draft: Draft[H], id: str, command: C, record: StoredRecord) -> Arrival:
        if not isinstance(command, Chunk | Part):
            return Arrival(record.offset, record.timestamp)
        receipt, given_up = None, False
        if isinstance(command, Chunk):
            if command.idempotency and command.sequence is not None:
                receipt = rows.receipt(draft.get(draft.store.row_key(id, keys.RECEIPT, command.sequence)))
            given_up = not self.verdicts.awaits(command.command)
        return Arrival(record.offset, record.timestamp, xxhash.xxh3_128_digest(command.data), receipt, given_up)

    @abstractmethod
    def write_again(self, draft: Draft[H], id: str, head: H, command: C, arrival: Arrival) -> None:
        """Rewrite a command's rows other than the head and the expiry index, if they are still needed."""

    def keep_request(
        self, draft: Draft[H], id: str, command: Opened | Accepted | Tuned | Renamed | SourceNoted, arrival: Arrival
    ) -> None:
        """Write the row of a request."""
        assert isinstance(command, Opened | Accepted)
        draft.put_request(id, command, arrival)

    def keep_audio(self, draft: Draft[H], id: str, number: int, data: bytes, arrival: Arrival) -> None:
        """Keep the audio of a chunk or part in the log."""
        draft.after(partial(draft.store.references.add, arrival.offset))

    def _watch(self, draft: Draft[H], id: str, head: H) -> None:
        draft.put(draft.store.due_key(head.due(self.lifetime_ms), id), b"")


def put_audio(draft: Draft[Any], id: str, number: int, row: AudioRow) -> None:
    draft.put(draft.store.row_key(id, keys.AUDIO, number), rows.encode(row))


def _write_row(draft: Draft[H], id: str, before: H | None, head: H, data: bytes, arrival: Arrival) -> None:
    """Write the row of a new chunk or part, or if its reference is in the head, of the one that had to leave there."""
    if not head.recent:
        put_audio(draft, id, head.audio[-1], arrival.row_of(data))
    elif before is not None and before.recent and first_recent(before) < first_recent(head):
        put_audio(draft, id, first_recent(before), before.recent[0])
