"""The log records of sessions, one union per topic."""

from typing import Literal

import msgspec

from topics.choices import SoundRule
from topics.geometry import Geometry
from topics.hearing import Hearing
from topics.records import Record
from topics.sessions.capture import SourceEvent, SourceNote
from topics.sessions.sounds import DEFAULT, SoundRules

SessionKind = Literal["stream", "file"]


# --- earshot.session.command.v1, key = session id -------------------------------------------------------------------


class Opened(Record, frozen=True, tag="open"):
    """A session was requested; its fields never change afterwards."""

    command: str
    #: "stream": analysed chunk by chunk; "file": analysed as a whole once readonly.
    kind: SessionKind
    content_type: str
    project: str
    window_ms: int
    hop_ms: int
    #: Bytes of audio after which the session becomes readonly.
    total_size: int | None = None
    default_sensitivity: int = 0
    tags_sensitivity: dict[str, int] = msgspec.field(default_factory=dict)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    file_name: str | None = None
    file_length: float | None = None
    #: The model of the session, with its own sounds (`topics.hearing.model_with`).
    model: str = ""
    organization: str = ""
    #: Log time (ms) of the opening, in the row only; 0 on the log.
    at: int = 0
    #: Rules of sounds (`Tuned`) after those of `hearing.choices`, in order, in the row only; () on the log.
    tuned: tuple[SoundRules, ...] = ()
    hearing: Hearing = Hearing()
    #: True if the id is derived from a `request_id`, so that a client can ask for the same id again.
    derived: bool = False

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.window_ms, self.hop_ms)

    @property
    def rules(self) -> tuple[SoundRules, ...]:
        """All rules of sounds, starting with those of the first window."""
        choices = self.hearing.choices
        return SoundRules(0, self.command, choices.sound_rule or DEFAULT, choices.sound_rules), *self.tuned

    def audio_ms(self, windows: int, predicts: bool) -> int:
        """Return the duration (ms) of audio in this many windows; windows of `/predict` do not overlap."""
        if predicts or not windows:
            return windows * self.window_ms
        return (windows - 1) * self.hop_ms + self.window_ms


class Chunk(Record, frozen=True, tag="chunk"):
    """One upload of audio bytes; `sequence` None (predict only) means the next number."""

    command: str
    sequence: int | None
    data: bytes
    #: 16 bytes of BLAKE2b over the client's Idempotency-Key header, b"" if there was none.
    idempotency: bytes = b""
    #: True for `/predict`: the chunk is one independent window.
    predict: bool = False
    #: When the first sample that begins in the chunk was captured (Unix ms), if the client told it; otherwise 0.
    captured: int = 0


class Sealed(Record, frozen=True, tag="seal"):
    """The client requested `make_readonly`."""

    command: str


class Deleted(Record, frozen=True, tag="delete"):
    """The client deleted the session."""

    command: str


class Expired(Record, frozen=True, tag="expire"):
    """The sweeper found that the session's time is over; the session stays if any command came since."""

    command: str
    #: Offset of the last command that the sweeper saw: the last chunk, seal or deletion; -1 if it found no session.
    seen: int
    #: The due time (ms) of the expiry index entry behind this command.
    due: int


class Failed(Record, frozen=True, tag="fail"):
    """The session's audio cannot be analysed; the session becomes readonly with this message."""

    command: str
    error: str
    #: Windows before the failure.
    windows: int


class Metered(Record, frozen=True, tag="meter"):
    """The session's audio up to this window is in the ledger."""

    command: str
    windows: int
    #: Whether the windows came by `/predict`, each with its own audio.
    predicts: bool = False


class Tuned(Record, frozen=True, tag="tune"):
    """New sound rules for the windows that were not made at this place of the log; None leaves a rule as it is."""

    command: str
    sound_rule: SoundRule | None = None
    sound_rules: dict[str, SoundRule] | None = None


class Renamed(Record, frozen=True, tag="rename"):
    """New words of the client about the session; None leaves them as they are."""

    command: str
    file_name: str | None = None
    metadata: dict[str, str] | None = None


class SourceNoted(Record, frozen=True, tag="source"):
    """Something happened to the source of the session's audio."""

    command: str
    event: SourceEvent
    #: Unix time (ms); 0 if the service notes it when it comes.
    at: int = 0
    reason: str | None = None
    #: Offset of the last command (`SessionHead.command`) with which the service noticed it; -1 if a client tells it.
    seen: int = -1


#: Commands that do not count as a use of the session.
SessionNote = Failed | Metered | Tuned | Renamed | SourceNoted
SessionCommand = Opened | Chunk | Sealed | Deleted | Expired | SessionNote


# --- the analysis ---------------------------------------------------------------------------------------------------


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The state of a session's analysis, sufficient to resume from the log after a crash."""

    #: All chunks with a lower sequence are analysed.
    chunks: int = 0
    #: The first chunk that a later window needs.
    keep: int = 0
    #: Position of the first sample of chunk `keep`, in samples of the source rate.
    keep_at: int = 0
    #: Sample rate of the source in Hz, 0 until the first chunk is decoded.
    rate: int = 0
    #: Bytes at the beginning of chunk `keep` that continue what the chunk before began, so they precede `keep_at`.
    skip: int = 0


class NewWindows(msgspec.Struct, frozen=True):
    """Windows of one session in order, which a worker scored, and how far its analysis came. Not a record."""

    #: Index of the first window in `scores`.
    first: int
    #: As in `Opened`.
    model: str
    #: Packed scores (`topics.scores`), tags x windows bytes, window by window.
    scores: bytes
    cursor: Cursor
    #: True for the last windows of a session.
    final: bool = False
    #: Number of tags per window; 0 only if there are no scores.
    tags: int = 0
    #: The embeddings kept with the windows, one byte per number; zeros for contexts that were not heard.
    embeddings: bytes = b""
    #: Windows from `first` on, as (first, end), that lie in gaps of a file; they are not billed.
    silent: tuple[tuple[int, int], ...] = ()
    #: Notes of the source that come before these windows: the first that the analysis has not come to.
    notes: tuple[SourceNote, ...] = ()
    #: Level (dBFS) of each window, None if unknown; () if nobody asked for it.
    levels: tuple[float | None, ...] = ()

    @property
    def count(self) -> int:
        """Number of windows."""
        return len(self.scores) // self.tags if self.tags else 0
