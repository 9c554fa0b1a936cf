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
from streams.folding.head_store import HeadStore, audio_offsets
from streams.sessions.audio import AudioCache
from topics import keys, record_codec
from topics.folding import Arrival, Effect, Verdict, first_recent
from topics.jobs.records import Accepted
from topics.rows import encode
from topics.sessions import rows as sessions
from topics.sessions import rules
from topics.sessions.analysis_rules import tuned
from topics.sessions.records import Chunk, Failed, Opened, SessionCommand, SessionNote, Tuned
from topics.sessions.rules import SessionHead, SessionState

#: Number of chunk digests remembered: some seconds of 2,000 microphones.
DIGESTS: Final = 16384


class SessionIntake(Intake[SessionHead, SessionCommand]):
    """Folds the session command topic; fresh audio goes into the analyser's cache. Loop only."""

    decode = staticmethod(record_codec.decode_command)
    step = staticmethod(rules.fold_command)

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

    def answer(self, draft: Draft[SessionHead], id: str, command: SessionCommand, verdict: Verdict) -> None:
        """Resolve a verdict; accepted rules are logged first, since no record says at which window they begin."""
        if isinstance(command, Tuned) and verdict.status == HTTPStatus.NO_CONTENT:
            self.answer_logged(draft, draft.store.row_key(id, keys.RULES), command, verdict)
        else:
            super().answer(draft, id, command, verdict)

    def keep_request(
        self, draft: Draft[SessionHead], id: str, command: Opened | Accepted | Tuned, arrival: Arrival
    ) -> None:
        """Write the row of a request; new rules begin behind all windows that are made, also those not shown yet."""
        if not isinstance(command, Tuned):
            super().keep_request(draft, id, command, arrival)
            return
        store, key = draft.store, draft.store.row_key(id, keys.RULES)
        opened = sessions.opened(draft.get(store.row_key(id, keys.REQUEST)))
        head = draft.head(id)
        if opened is None or head is None:
            return
        first = max(head.windows, store.made(id))
        changed = tuned(sessions.with_rules(opened, draft.get(key)), command, first)
        draft.put(key, encode(changed.tuned))
        draft.put_request_row(id, changed)

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
                again = command if known is None else msgspec.structs.replace(command, tuned=known.tuned)
                rules_row = draft.get(draft.store.row_key(id, keys.RULES))
                draft.put_request(id, sessions.with_rules(again, rules_row), arrival)
            case Tuned():
                self.keep_request(draft, id, command, arrival)
            case Failed():
                self.carry_out(draft, id, Effect.RECALL, head, head)
                self.drop_audio(draft, id, head, head.audio)
            case Chunk():
                number = command.sequence
                if number is None:
                    number = self._number_at(draft, id, head, arrival.offset)
                rows_of = [(keys.AUDIO, number), (keys.RECEIPT, number)]
                if head.kind == "stream" and number >= rules.MOST_RECENT:
                    # With this chunk, the reference to an earlier one may have left the head for a row.
                    rows_of.append((keys.AUDIO, number - rules.MOST_RECENT))
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
