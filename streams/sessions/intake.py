"""The intake of sessions: folds commands into heads and rows, and resolves the verdicts."""

from bisect import bisect_left
from collections import OrderedDict
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.command_intake import Intake
from streams.folding.draft import Draft
from streams.folding.fold import Announce
from streams.folding.head_store import HeadStore, above, audio_offsets
from streams.sessions.audio import AudioCache
from streams.sessions.store import SessionStore
from topics import keys, record_codec
from topics.folding import Arrival, Effect, Verdict, first_recent
from topics.jobs.records import Accepted
from topics.rows import encode
from topics.sessions import commands
from topics.sessions import rows as sessions
from topics.sessions.analysis_rules import renamed, tuned
from topics.sessions.capture import Anchor, SourceNote
from topics.sessions.records import (
    Chunk,
    Deleted,
    Failed,
    Opened,
    Renamed,
    SessionCommand,
    SessionNote,
    SourceNoted,
    Tuned,
)
from topics.sessions.rules import SessionHead, SessionState

#: Number of chunk digests remembered: some seconds of 2,000 microphones.
DIGESTS: Final = 16384


class SessionIntake(Intake[SessionHead, SessionCommand]):
    """Folds the session command topic; fresh audio goes into the analyser's cache. Loop only."""

    decode = staticmethod(record_codec.decode_command)
    step = staticmethod(commands.fold_command)

    def __init__(self, verdicts: Verdicts, lifetime_ms: int, announce: Announce, audio: AudioCache) -> None:
        super().__init__(verdicts, lifetime_ms, announce)
        self.audio = audio
        #: XXH3-128 of recently folded chunks, by session and number: their rows are deleted once analysed.
        self._digests: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def folded(self, head: SessionHead, command: SessionCommand) -> int:
        return head.noted if isinstance(command, SessionNote) else head.command

    def last(self, head: SessionHead) -> int:
        return max(head.command, head.noted)

    def digest(self, store: HeadStore[SessionHead], session: str, number: int) -> bytes | None:
        """Return the XXH3-128 of a chunk; None if it is no longer known."""
        if (digest := self._digests.get((session, number))) is not None:
            return digest
        found = store.audio(session, number, number + 1)
        return found[0].digest if found else None

    def keep_audio(self, draft: Draft[SessionHead], id: str, number: int, data: bytes, arrival: Arrival) -> None:
        """Keep a chunk's audio in the log, and cache it."""
        super().keep_audio(draft, id, number, data, arrival)
        draft.after(partial(self._note_digest, id, number, arrival.digest))
        head = draft.head(id)
        of_file = head is not None and head.kind == "file"
        place = draft.store.partition.number, arrival.offset
        draft.after(partial(self.audio.put, *place, data, of_file=of_file))

    def carry_out(
        self,
        draft: Draft[SessionHead],
        id: str,
        effect: Effect,
        before: SessionHead | None,
        head: SessionHead | None,
    ) -> None:
        """Carry out an effect that does not need the record."""
        if effect is not Effect.KEEP_ANCHOR:
            super().carry_out(draft, id, effect, before, head)
        elif head is not None and head.anchor is not None:
            draft.put(keys.anchor_key(id, head.anchor.position_ms), encode(head.anchor))
            if head.anchor.told:
                _watch(draft, id)

    def answer(self, draft: Draft[SessionHead], id: str, command: SessionCommand, verdict: Verdict) -> None:
        """Resolve a verdict; accepted rules are logged first, since no record says at which window they begin.

        Alarms outlive a session that expires, and not one that its client deletes.
        """
        if isinstance(command, Deleted):
            self._erase_alarms(draft, id)
        if isinstance(command, Tuned) and verdict.status == HTTPStatus.NO_CONTENT:
            self.answer_logged(draft, draft.store.row_key(id, keys.RULES), command, verdict)
        else:
            super().answer(draft, id, command, verdict)

    def keep_request(
        self,
        draft: Draft[SessionHead],
        id: str,
        command: Opened | Accepted | Tuned | Renamed | SourceNoted,
        arrival: Arrival,
    ) -> None:
        """Write the row of a request; new rules begin behind all windows that are made, also those not shown yet."""
        match command:
            case SourceNoted():
                _keep_note(draft, id, command, arrival)
            case Tuned() | Renamed():
                self._change(draft, id, command)
            case _:
                super().keep_request(draft, id, command, arrival)

    def _change(self, draft: Draft[SessionHead], id: str, command: Tuned | Renamed) -> None:
        """Change what a session was opened with."""
        store = draft.store
        opened = sessions.opened(draft.get(store.row_key(id, keys.REQUEST)))
        head = draft.head(id)
        if opened is None or head is None:
            return
        opened = self._with_changes(draft, id, opened)
        if isinstance(command, Tuned):
            opened = tuned(opened, command, max(head.windows, store.made(id)))
            draft.put(store.row_key(id, keys.RULES), encode(opened.tuned))
        else:
            opened = renamed(opened, command)
            draft.put(store.row_key(id, keys.NAME), encode(sessions.Name(opened.file_name, opened.metadata)))
        draft.put_request_row(id, opened)

    def _with_changes(self, draft: Draft[SessionHead], id: str, opened: Opened) -> Opened:
        rules_row, name_row = (draft.get(draft.store.row_key(id, kind)) for kind in (keys.RULES, keys.NAME))
        return sessions.with_changes(opened, rules_row, name_row)

    def _erase_alarms(self, draft: Draft[SessionHead], id: str) -> None:
        assert isinstance(draft.store, SessionStore)
        draft.store.alarms.erase(draft, id)

    def _note_digest(self, id: str, number: int, digest: bytes) -> None:
        self._digests[id, number] = digest
        if len(self._digests) > DIGESTS:
            self._digests.popitem(last=False)

    def write_again(
        self, draft: Draft[SessionHead], id: str, head: SessionHead, command: SessionCommand, arrival: Arrival
    ) -> None:
        """Rewrite the opening, or a chunk's remaining rows; only its row shows whether a chunk was accepted."""
        match command:
            case Opened() if head.state is not SessionState.DELETED or head.unmetered:
                known = sessions.opened(draft.get(draft.store.row_key(id, keys.REQUEST)))
                if known is not None:
                    changed = {"tuned": known.tuned, "file_name": known.file_name, "metadata": known.metadata}
                    command = msgspec.structs.replace(command, **changed)
                draft.put_request(id, self._with_changes(draft, id, command), arrival)
            case Tuned():
                self._change(draft, id, command)
            case Renamed():
                # The rows may have a later name.
                self._change(draft, id, Renamed(command.command))
            case SourceNoted() if head.source is not None:
                _write_note_again(draft, id, head.source.notes, arrival.offset)
            case Deleted():
                self._erase_alarms(draft, id)
            case Failed():
                self.carry_out(draft, id, Effect.RECALL, head, head)
                self.drop_audio(draft, id, head, head.audio)
            case Chunk():
                number = command.sequence
                if number is None:
                    number = self._number_at(draft, id, head, arrival.offset)
                if head.anchor is not None:
                    _write_anchor_again(draft, id, head.anchor, arrival.offset)
                rows_of = [(keys.AUDIO, number), (keys.RECEIPT, number)]
                if head.kind == "stream" and number >= commands.MOST_RECENT:
                    # With this chunk, the reference to an earlier one may have left the head for a row.
                    rows_of.append((keys.AUDIO, number - commands.MOST_RECENT))
                for kind, of in rows_of:
                    key = draft.store.row_key(id, kind, of)
                    if (value := draft.get(key)) is not None:
                        draft.put(key, value)

    def _number_at(self, draft: Draft[SessionHead], id: str, head: SessionHead, offset: int) -> int:
        """Return the number of the chunk at an offset of the log, which has a session's chunks in order."""
        recent = first_recent(head)

        def offset_of(number: int) -> int:
            if number >= recent:
                return head.recent[number - recent].offset
            # The first rows are dropped first.
            return next(audio_offsets([draft.get(draft.store.row_key(id, keys.AUDIO, number))]), -1)

        return head.audio.start + bisect_left(head.audio, offset, key=offset_of)

    def release(self, store: HeadStore[SessionHead], offset: int) -> None:
        """Release the audio at an offset, in the log and in memory."""
        super().release(store, offset)
        self.audio.drop(store.partition.number, offset)


def _keep_note(draft: Draft[SessionHead], id: str, command: SourceNoted, arrival: Arrival) -> None:
    head = draft.head(id)
    if head is None or head.source is None:
        return
    number, source = head.source.notes - 1, head.source
    key, place = draft.store.row_key(id, keys.NOTE, number), {"chunk": head.next, "offset": arrival.offset}
    note = SourceNote(number, source.event, source.at_ms, source.told, command.reason, **place)
    known = sessions.note(draft.get(key))
    if known is not None and known.offset == arrival.offset:
        # An earlier owner's analysis has come to it, and its head is not in the changelog.
        note = known
    draft.put(key, encode(note))
    _watch(draft, id)


def _watch(draft: Draft[SessionHead], id: str) -> None:
    assert isinstance(draft.store, SessionStore)
    draft.after(partial(draft.store.watched.add, id))


def _write_note_again(draft: Draft[SessionHead], id: str, notes: int, offset: int) -> None:
    """Rewrite the row of the note at an offset of the log, which has a session's notes in order."""

    def row(number: int) -> bytes | None:
        return draft.get(draft.store.row_key(id, keys.NOTE, number))

    def offset_of(number: int) -> int:
        note = sessions.note(row(number))
        return -1 if note is None else note.offset

    number = bisect_left(range(notes), offset, key=offset_of)
    if offset_of(number) == offset and (value := row(number)) is not None:
        draft.put(draft.store.row_key(id, keys.NOTE, number), value)


def _write_anchor_again(draft: Draft[SessionHead], id: str, last: Anchor, offset: int) -> None:
    """Rewrite the row of the anchor that a chunk at an offset of the log made, if it made one."""
    upper = above(draft.store.row_key(id, keys.ANCHOR))
    for key, value in draft.store.partition.scan(keys.anchor_key(id, last.position_ms), upper):
        anchor = sessions.anchor(value)
        if anchor is None or anchor.offset <= offset:
            if anchor is not None and anchor.offset == offset:
                draft.put(key, value)
            return
