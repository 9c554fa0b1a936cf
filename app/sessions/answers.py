"""Answers about sessions: the types that the documents show and that answers are encoded from.

Pages are assembled around the cached JSON of their windows; the tests check them against these types.
"""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.cluster.lists import MissingPart
from app.http.replies import Time
from app.job_progress import JobId, JobProgress
from app.shown_alarms import ShownAlarm
from app.windows import Seconds, SenseEvent, SenseEventTag
from topics.keys import ID_LENGTH
from topics.ports.live import BANDS, COLUMN_MS, HIGH_HZ, LOW_HZ, SILENCE_DB, STEPS_PER_DB

SessionId = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9A-Za-z]{{{ID_LENGTH}}}$",
        description="Identifier in all paths of the session. Keep it secret: by default, requests need no key.",
    ),
]
SessionError = Annotated[str, Meta(description="Why the audio cannot be analysed; absent if it can.")]


CapturedAt = Annotated[
    Time | UnsetType, Meta(description="When the audio at `start_time` was captured, if a client told times.")
]


class SessionRefs(msgspec.Struct, frozen=True):
    """The state of a session."""

    session_id: SessionId
    chunk_sequence: Annotated[int, Meta(ge=0, description="Number of the next chunk to upload.")]


class CreatedSession(SessionRefs, frozen=True):
    """A new session: its SessionRefs, and the geometry of its windows."""

    window_size: Annotated[float, Meta(description="Length of a window in seconds.")]
    window_hop: Annotated[float, Meta(description="Seconds from the start of one window to the next.")]


class Page(msgspec.Struct, frozen=True):
    """Which windows an answer holds."""

    count: Annotated[int, Meta(ge=0, description="Windows in this answer.")]
    offset: Annotated[int, Meta(ge=0, description="Index of the first one.")]
    total: Annotated[int, Meta(ge=0, description="Windows available at the moment.")]
    next_token: Annotated[
        str | UnsetType, Meta(description="Token for the next page; absent at the end of the session.")
    ] = UNSET


class Sense(msgspec.Struct, frozen=True):
    """The results so far."""

    in_progress: Annotated[bool, Meta(description="True while uploaded chunks wait for inference.")]
    page: Page
    results: list[SenseEvent]


class SessionStatus(msgspec.Struct, frozen=True):
    """The state of a session, and a page of its windows."""

    state: Annotated[Literal["writable", "readonly"], Meta(description="Once `readonly`, never `writable` again.")]
    refs: SessionRefs
    inference: Sense
    error: SessionError | UnsetType = UNSET


class SessionResults(msgspec.Struct, frozen=True):
    """Windows as later clients read them, and the session's state."""

    state: Annotated[
        Literal["pending", "in-progress", "done", "error"],
        Meta(description="`pending` while chunks may come, then `in-progress`, then `done` or `error`."),
    ]
    data: list[SenseEvent]
    has_more: Annotated[bool, Meta(description="True if there are more windows, or will be.")]
    error: SessionError | UnsetType = UNSET


class Prediction(msgspec.Struct, frozen=True):
    """One window that was analysed at once."""

    data: SenseEvent
    next_sequence: Annotated[int, Meta(ge=1, description="Number of the next window.")]


class OfficialTag(msgspec.Struct, frozen=True):
    """A sound that the model can name."""

    id: Annotated[str, Meta(description="The name in lower case.")]
    name: str


class ClientVersions(msgspec.Struct, frozen=True):
    """Supported versions of the vendor's client library."""

    supported_versions: list[str]


class LatestClient(msgspec.Struct, frozen=True):
    """The newest of them."""

    version: str


class SourceFault(msgspec.Struct, frozen=True):
    """What is wrong with the source of a session."""

    state: Annotated[Literal["lost", "silent"], Meta(description="No audio comes, or only digital silence.")]
    since: Time


class SessionEntry(msgspec.Struct, frozen=True):
    """A session in a list."""

    session_id: SessionId
    state: Literal["writable", "readonly"]
    type: Literal["stream", "file"]
    content_type: Annotated[str, Meta(description="As the client declared it.")]
    created_at: Annotated[Time | None, Meta(description="Null if an early version opened the session.")]
    updated_at: Annotated[Time, Meta(description="When the last chunk came, or the upload ended.")]
    file_name: Annotated[str | None, Meta(description="As the client named it.")]
    seconds: Annotated[float, Meta(ge=0, description="Seconds of audio that were analysed.")]
    in_progress: Annotated[bool, Meta(description="True while uploaded chunks wait for inference.")]
    error: SessionError | UnsetType = UNSET
    metadata: Annotated[dict[str, str] | UnsetType, Meta(description="The client's own notes, if any.")] = UNSET
    source: Annotated[SourceFault | UnsetType, Meta(description="Absent if nothing is wrong, or known.")] = UNSET


class LiveSession(SessionEntry, frozen=True, kw_only=True):
    """A session in the stream: sent first, and when its state changes."""

    event: ClassVar = "session"
    next_window: Annotated[int, Meta(ge=0, description="Number of the next window here.")]
    window_size: Annotated[float, Meta(description="Length of a window in seconds.")]
    window_hop: Annotated[float, Meta(description="Seconds from the start of one window to the next.")]


class Level(msgspec.Struct, frozen=True):
    """How loud a window is, in dBFS; a full-scale sine has an `rms` of -3."""

    rms: Annotated[float, Meta(ge=SILENCE_DB, description=f"{SILENCE_DB:g} is silence.")]
    peak: Annotated[float, Meta(ge=SILENCE_DB, description="Of the largest sample.")]


class Strip(msgspec.Struct, frozen=True):
    """Spectrogram columns of the part of a window that the one before does not cover."""

    start_time: Seconds
    columns: Annotated[
        bytes,
        Meta(
            description=f"Columns of {COLUMN_MS} ms, of {BANDS} bytes each: bands from {LOW_HZ:g} to {HIGH_HZ:g} Hz "
            "(or half the sample rate), even on the mel scale, the lowest first. A byte q stands for a power of "
            f"(q - 255) / {STEPS_PER_DB} dB against a full-scale sine."
        ),
    ]


class _NumberedWindow(SenseEvent, frozen=True):
    session_id: SessionId
    window: Annotated[int, Meta(ge=0, description="Its number.")]


class LiveWindow(_NumberedWindow, frozen=True, kw_only=True):
    """An analysed window."""

    event: ClassVar = "window"
    top: Annotated[
        list[SenseEventTag], Meta(description="The five most probable sounds; from 0.5 on they are reported.")
    ]
    level: Annotated[Level | UnsetType, Meta(description="Absent if nobody listened, or it was evicted.")] = UNSET
    strip: Annotated[Strip | UnsetType, Meta(description="Absent if not requested, or if `level` is absent.")] = UNSET
    captured_at: CapturedAt = UNSET


class LiveEnd(msgspec.Struct, frozen=True):
    """The session will have no more windows."""

    event: ClassVar = "ended"
    session_id: SessionId
    windows: Annotated[int, Meta(ge=0, description="Number in total.")]
    error: SessionError | UnsetType = UNSET


class LiveDeleted(msgspec.Struct, frozen=True):
    """A session was deleted."""

    event: ClassVar = "deleted"
    session_id: SessionId


class LiveMoved(msgspec.Struct, frozen=True):
    """A session moved to another node and goes on there: ask again for it."""

    event: ClassVar = "moved"
    session_id: SessionId


class LiveBehind(msgspec.Struct, frozen=True):
    """These windows come late, because the client reads too slowly; without `level` if it was evicted."""

    event: ClassVar = "behind"
    session_id: SessionId
    first: Annotated[int, Meta(ge=0, description="Number of the first one.")]
    stop: Annotated[int, Meta(ge=1, description="One more than the number of the last one.")]


class LiveMissing(msgspec.Struct, frozen=True):
    """Partitions that no node serves now; 0 once all are served."""

    event: ClassVar = "missing"
    partitions: Annotated[int, Meta(ge=0, description="Partitions whose sessions are not heard.")]
    of: Annotated[int, Meta(ge=1, description="Partitions in total.")]


class LiveJob(JobProgress, frozen=True, kw_only=True):
    """The progress of a job: sent first, and at each change; `completed` is its end."""

    event: ClassVar = "job"
    cursor: Annotated[
        str, Meta(description="Id in the job's own stream: send it there as `Last-Event-ID` for later events.")
    ]


class LiveJobRemoved(msgspec.Struct, frozen=True):
    """A job was deleted."""

    event: ClassVar = "job.removed"
    job_id: JobId


class LiveFault(msgspec.Struct, frozen=True):
    """This node cannot continue the stream: ask again."""

    event: ClassVar = "error"
    error: Annotated[str, Meta(min_length=1)]


#: The events of a session's stream; that of a project has more.
SESSION_EVENTS: Final = (LiveSession, LiveWindow, LiveBehind, LiveEnd, LiveDeleted, LiveMoved)
PROJECT_EVENTS: Final = (LiveJob, LiveJobRemoved, ShownAlarm, LiveMissing, LiveFault)


class SessionPage(msgspec.Struct, frozen=True):
    """Sessions of the project, the newest first."""

    sessions: list[SessionEntry]
    next_token: Annotated[str | UnsetType, Meta(description="Token for the next page; absent at the end.")] = UNSET
    missing: MissingPart | UnsetType = UNSET
