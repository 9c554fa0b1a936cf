"""The records of sessions on the log, one union a topic."""

from typing import Literal

import msgspec

from topics.hearing import Hearing
from topics.records import Record
from topics.sessions.sounds import DEFAULT, SoundRule, SoundRules

SessionKind = Literal["stream", "file"]


# --- earshot.session.command.v1, key = session id -------------------------------------------------------------------


class Opened(Record, frozen=True, tag="open"):
    """A session was asked for; everything in it is immutable afterwards."""

    command: str
    #: "stream": inferred chunk by chunk; "file": inferred as a whole once readonly.
    kind: SessionKind
    content_type: str
    project: str
    window_ms: int
    hop_ms: int
    #: Bytes of audio after which the session becomes readonly by itself.
    total_size: int | None = None
    default_sensitivity: int = 0
    tags_sensitivity: dict[str, int] = msgspec.field(default_factory=dict)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    file_name: str | None = None
    file_length: float | None = None
    #: The model that scores the session, with its own sounds (`topics.hearing.model_with`); "" in records from before
    #: models could change.
    model: str = ""
    #: "" in records from before sessions were metered.
    organization: str = ""
    #: Log time (ms) of the opening: known in the row alone, 0 on the log.
    at: int = 0
    #: When a sound is on: of all sounds, and of some by name. Records from before sounds had events have no rule.
    sound_rule: SoundRule = DEFAULT
    sound_rules: dict[str, SoundRule] = msgspec.field(default_factory=dict)
    #: Rules that came later (`Tuned`), in their order: known in the row alone, () on the log.
    tuned: tuple[SoundRules, ...] = ()
    hearing: Hearing = Hearing()

    @property
    def rules(self) -> tuple[SoundRules, ...]:
        """All rules of sounds, those of the first window first."""
        return SoundRules(0, self.command, self.sound_rule, self.sound_rules), *self.tuned

    def audio_ms(self, windows: int, predicts: bool) -> int:
        """Return how much audio this many windows cover, milliseconds; each one of `/predict` has its own."""
        if predicts or not windows:
            return windows * self.window_ms
        return (windows - 1) * self.hop_ms + self.window_ms


class Chunk(Record, frozen=True, tag="chunk"):
    """One upload of audio bytes; `sequence` None (predict only) means the next number, whichever it is."""

    command: str
    sequence: int | None
    data: bytes
    #: 16 bytes of BLAKE2b over the client's Idempotency-Key header, b"" when there was none.
    idempotency: bytes = b""
    #: True for `/predict`: the chunk is one independent window.
    predict: bool = False


class Sealed(Record, frozen=True, tag="seal"):
    """The client asked for `make_readonly`."""

    command: str


class Deleted(Record, frozen=True, tag="delete"):
    """The client deleted the session."""

    command: str


class Expired(Record, frozen=True, tag="expire"):
    """The sweeper found the session's deadline passed; the fold decides, by log time, whether it is true."""

    command: str
    #: A session without a chunk for longer than this is deleted.
    idle_ms: int
    #: The due time (ms) of the expiry index entry that led here.
    due: int


SessionCommand = Opened | Chunk | Sealed | Deleted | Expired


# --- earshot.session.result.v1, key = session id --------------------------------------------------------------------


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The state of the analysis of a session, enough to go on from the log alone after a crash."""

    #: Chunks analysed: all with a sequence below this.
    chunks: int = 0
    #: The first chunk that a later window needs.
    keep: int = 0
    #: Position of the first sample of chunk `keep`, in samples of the source rate.
    keep_at: int = 0
    #: Sample rate of the source in Hz, 0 until the first chunk was decoded.
    rate: int = 0


class Scored(Record, frozen=True, tag="scores"):
    """Windows of scores in order. Written again after a crash, with the same scores bit for bit."""

    #: Index of the first window in `scores`.
    first: int
    #: As of `Opened`.
    model: str
    #: Packed scores (`topics.scores`), tags x windows bytes, window by window.
    scores: bytes
    cursor: Cursor
    #: The cursor's `keep` before this record: nobody needs chunk rows in [dropped, cursor.keep) any longer.
    dropped: int = 0
    #: True on the last record of a session: no window comes after it.
    final: bool = False
    #: Tags of a window; 0 in records from before models could change.
    tags: int = 0
    #: The embeddings that are kept with the windows, one byte a number; zeros where no look was heard.
    looks: bytes = b""


class Failed(Record, frozen=True, tag="fail"):
    """The session's audio cannot be analysed; the session becomes readonly with this message."""

    error: str


class Begun(Record, frozen=True, tag="begin"):
    """A session that was unfinished when its owner came is about to be analysed: what if the process dies of it?"""

    #: The progress of the analysis: windows and chunks that are done. It is meaningless for a session that has got
    #: further.
    windows: int
    chunks: int
    #: How many times it was begun there without a seen end, including this time unless it has ended.
    times: int
    #: The lives of the processes that did so; fewer in records from before a process named itself.
    lives: tuple[str, ...] = ()


class Metered(Record, frozen=True, tag="meter"):
    """The ledger holds the session's audio up to this window."""

    windows: int
    #: True for a session whose windows came by `/predict`, each with audio of its own.
    predicts: bool = False


class Tuned(Record, frozen=True, tag="tune"):
    """Other rules of sounds, for the windows behind this place of the log; what is None stays as it is."""

    command: str
    sound_rule: SoundRule | None = None
    sound_rules: dict[str, SoundRule] | None = None


SessionResult = Scored | Failed | Begun | Metered | Tuned
