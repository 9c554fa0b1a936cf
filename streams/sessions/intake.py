"""The intake agent: folds commands into session and chunk rows and resolves the verdicts. It never decodes audio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator

import xxhash

from streams.folding.fold import LogRecord, name_of
from streams.folding.references import References
from streams.folding.store import Draft
from streams.folding.verdicts import Verdicts
from streams.sessions.audio import AudioCache
from topics import codec, keys, rows
from topics.folding import Arrival, Effect, Receipt, Step, Verdict
from topics.rows import AudioRow
from topics.sessions import rules
from topics.sessions.records import Chunk, Expired, Opened, SessionCommand
from topics.sessions.rows import receipt as receipt_row
from topics.sessions.rules import SessionHead

#: Told of sessions that have work to do, and of sessions that are gone.
Announce = Callable[[int, list[str], list[str]], Awaitable[None]]


class Intake:
    """Folds the records of the command topic; one object for all partitions of a node."""

    def __init__(
        self, verdicts: Verdicts, cache: AudioCache, references: References, idle_ms: int, announce: Announce
    ) -> None:
        self.verdicts = verdicts
        self.cache = cache
        self.references = references
        self.idle_ms = idle_ms
        self.announce = announce
        self._answers: list[tuple[str, Verdict]] = []
        self._work: dict[str, None] = {}
        self._gone: dict[str, None] = {}

    def fold(self, draft: Draft[SessionHead], record: LogRecord) -> None:
        """Fold one command."""
        command = codec.decode_command(record.value)
        session = name_of(record)
        head = draft.head(session)
        if head is not None and record.offset <= head.command:
            self._again(draft, session, head, command, record)
            return
        arrival = self._arrival(draft, session, command, record)
        step = rules.fold_command(head, command, arrival)
        if step.head is not None and step.head is not head:
            draft.put_head(session, step.head)
        for effect in step.effects:
            self._carry_out(draft, session, effect, step, command, record, arrival)
        self._answers.append((command.command, step.verdict))

    def _arrival(self, draft: Draft[SessionHead], session: str, command: SessionCommand, record: LogRecord) -> Arrival:
        if not isinstance(command, Chunk):
            return Arrival(record.offset, record.timestamp)
        known = None
        if command.idempotency and command.sequence is not None:
            known = receipt_row(draft.get(keys.session_key(session, keys.RECEIPT, command.sequence)))
        return Arrival(record.offset, record.timestamp, xxhash.xxh3_128_digest(command.data), known)

    def _again(
        self, draft: Draft[SessionHead], session: str, head: SessionHead, command: SessionCommand, record: LogRecord
    ) -> None:
        """A command that was folded before the last stop: write its rows again, the changelog may not have them."""
        draft.put_head(session, head)
        if isinstance(command, Opened):
            draft.put(keys.session_key(session, keys.OPENED), rows.encode(command))
            draft.put(keys.due_key(head.touched + self.idle_ms, session), b"")
        elif isinstance(command, Chunk):
            for sequence in _sequences(head, command):
                for kind in (keys.CHUNK, keys.RECEIPT):
                    key = keys.session_key(session, kind, sequence)
                    if (value := draft.get(key)) is not None:
                        draft.put(key, value)
        self._work[session] = None

    def _carry_out(
        self,
        draft: Draft[SessionHead],
        session: str,
        effect: Effect,
        step: Step[SessionHead],
        command: SessionCommand,
        record: LogRecord,
        arrival: Arrival,
    ) -> None:
        match effect, command, step.head:
            case Effect.KEEP_CHUNK, Chunk(), SessionHead() as head:
                self._keep_chunk(draft, session, head.next - 1, command, arrival)
            case Effect.KEEP_RECEIPT, Chunk(), SessionHead() as head:
                receipt = Receipt(command.idempotency, arrival.digest)
                draft.put(keys.session_key(session, keys.RECEIPT, head.next - 1), rows.encode(receipt))
            case Effect.ANALYSE, _, _:
                self._work[session] = None
            case Effect.KEEP_OPENED, Opened(), _:
                draft.put(keys.session_key(session, keys.OPENED), rows.encode(command))
            case Effect.WATCH, _, SessionHead() as head:
                draft.put(keys.due_key(head.touched + self.idle_ms, session), b"")
            case Effect.UNWATCH, Expired(), _:
                draft.delete(keys.due_key(command.due, session))
            case Effect.ERASE, _, _:
                self._erase(draft, session)

    def _keep_chunk(
        self, draft: Draft[SessionHead], session: str, sequence: int, command: Chunk, arrival: Arrival
    ) -> None:
        row = AudioRow(arrival.offset, len(command.data), arrival.digest)
        draft.put(keys.session_key(session, keys.CHUNK, sequence), rows.encode(row))
        partition = draft.store.partition.number
        self.references.add(partition, arrival.offset)
        self.cache.put(partition, arrival.offset, command.data)

    def _erase(self, draft: Draft[SessionHead], session: str) -> None:
        partition = draft.store.partition.number
        for row in _chunks(draft, session):
            self.references.discard(partition, row.offset)
            self.cache.drop(partition, row.offset)
        draft.erase(session)
        self._gone[session] = None

    async def written(self, partition: int) -> None:
        """Resolve the verdicts of the batch and announce its work."""
        answers, self._answers = self._answers, []
        work, self._work = [session for session in self._work if session not in self._gone], {}
        gone, self._gone = list(self._gone), {}
        for command, verdict in answers:
            self.verdicts.resolve(command, verdict)
        if work or gone:
            await self.announce(partition, work, gone)

    def dropped(self, record: LogRecord, cause: str) -> None:
        """Nobody can be told: a record that was parked has no readable command, or none that folds."""


def _chunks(draft: Draft[SessionHead], session: str) -> Iterator[AudioRow]:
    """Yield the chunk rows that a session still holds, as the batch sees them."""
    head = draft.head(session)
    for sequence in range(head.cursor.keep, head.next) if head is not None else ():
        row = rows.audio(draft.get(keys.session_key(session, keys.CHUNK, sequence)))
        if row is not None:
            yield row


def _sequences(head: SessionHead, command: Chunk) -> Iterable[int]:
    """Return the numbers under which a chunk may have been kept; one without a number is among those still held."""
    return range(head.cursor.keep, head.next) if command.sequence is None else (command.sequence,)
