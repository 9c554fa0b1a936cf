"""The head of a session. `commands` has the rules of its commands, and `analysis_rules` those of its windows."""

from enum import StrEnum
from typing import Final

import msgspec

from topics.folding import AudioRow, first_recent
from topics.sessions.capture import Anchor, SourceState
from topics.sessions.records import Cursor, SessionKind

#: Windows of one metering step: an open session is billed each time it has this many more.
METER_WINDOWS: Final = 1200
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
    """The part of a session that changes; small, because it is written for every chunk.

    It has two rows with one writer each: the fold of commands writes the head's row, the analysis that of the newest
    windows (`topics.sessions.rows`).
    """

    kind: SessionKind
    total_size: int | None
    #: Log time (ms) of the last chunk, the opening or the deletion; -1 if only the ledger still needs the session.
    touched: int
    #: Offset of the last folded command that is no note.
    command: int
    state: SessionState = SessionState.WRITABLE
    #: Sequence number of the next chunk.
    next: int = 0
    received: int = 0
    #: True once `/predict` was used, False once a chunk was uploaded: a session accepts only one kind.
    predicts: bool | None = None
    error: str | None = None
    #: Number of readable windows. In the row of the newest windows.
    windows: int = 0
    #: In the row of the newest windows.
    cursor: Cursor = Cursor()
    #: True if no more windows will follow. In the row of the newest windows, unless the session failed.
    finished: bool = False
    #: Windows in the ledger.
    metered: int = 0
    #: As in `Opened`.
    derived: bool = False
    #: Log time (ms) of the opening.
    opened_at: int = 0
    #: References to the newest chunks of a stream, which have no rows: a row that is deleted a moment later costs two
    #: records of the changelog.
    recent: tuple[AudioRow, ...] = ()
    #: Log time (ms) of the newest windows, 0 before the first. No rule of a command reads it. In their row.
    analysed_at: int = 0
    #: Number and digest of the last accepted chunk whose sender was told that the write may still succeed, or nothing,
    #: until the sender repeats it.
    doubted: tuple[int, bytes] | None = None
    #: Windows (first, end) in gaps of a file, which are not billed; until the ledger has what follows them. In the row
    #: of the newest windows.
    silent: tuple[tuple[int, int], ...] = ()
    #: How often the sound rules changed.
    tuned: int = 0
    #: Offset of the last folded note (`SessionNote`).
    noted: int = -1
    #: Bytes a second of raw PCM, otherwise 0.
    byte_rate: int = 0
    #: From which capture times follow; None if they follow from the opening.
    anchor: Anchor | None = None
    #: None before the first note of the source.
    source: SourceState | None = None
    #: Notes of the source that the analysis has come to. In the row of the newest windows.
    heard: int = 0

    @property
    def in_progress(self) -> bool:
        """Whether uploaded chunks still wait for analysis."""
        return not self.ended and (self.cursor.chunks < self.next or self.state is SessionState.READONLY)

    @property
    def has_unheard(self) -> bool:
        """Whether notes of the source wait for the analysis to come to them."""
        return self.source is not None and self.heard < self.source.notes and not self.ended

    @property
    def analysable(self) -> bool:
        """Whether the analyser has work: in a stream with each chunk and note, in a file once it is complete."""
        if self.kind == "stream":
            return self.in_progress or self.has_unheard
        return self.in_progress and self.state is SessionState.READONLY

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
        return self.metered < self.meterable

    @property
    def unsettled(self) -> bool:
        """Whether windows may follow, or some must still go to the ledger."""
        return not self.ended or self.unmetered

    counted = unsettled

    @property
    def audio(self) -> range:
        """Numbers of the chunks that a later window may need."""
        return range(self.cursor.keep, self.next)

    @property
    def progress(self) -> int:
        """A number that grows with the analysis."""
        return self.windows + self.cursor.chunks + self.heard

    def due(self, lifetime_ms: int) -> int:
        """Return the log time (ms) before which the session does not expire, as far as its commands say."""
        if self.state is SessionState.DELETED:
            return self.touched + TOMBSTONE_MS
        idle = self.touched + lifetime_ms
        return min(idle, self.opened_at + FILE_MS) if self._is_arriving else idle

    def terms(self, lifetime_ms: int) -> tuple[tuple[int, int], ...]:
        """Return since when (log time in ms) and how long (ms of service time) it may stay; () while audio waits."""
        if self.state is SessionState.DELETED:
            return ((self.touched, TOMBSTONE_MS),)
        if self.analysable:
            return ()
        idle = max(self.touched, self.analysed_at), lifetime_ms
        return (idle, (self.opened_at, FILE_MS)) if self._is_arriving else (idle,)

    @property
    def _is_arriving(self) -> bool:
        """Whether it is a file that is not complete, so that its audio stays on the log."""
        return self.kind == "file" and self.state is SessionState.WRITABLE


def without_dropped(head: SessionHead) -> SessionHead:
    """Return a head without the `recent` references to chunks that no later window needs."""
    dropped = head.cursor.keep - first_recent(head)
    return msgspec.structs.replace(head, recent=head.recent[dropped:]) if dropped > 0 else head


def why_readonly(error: str | None) -> str:
    """Return why a readonly session, which may have an error, refuses a chunk."""
    return "the session is readonly and takes no more chunks" + (f": {error}" if error else "")
