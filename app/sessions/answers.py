"""Answers about sessions: the types of the documents, and of the answers that are encoded from them.

Pages of windows are put together from JSON that was rendered before (`app.sessions.rendering`); the tests hold them
against these types.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.cluster.lists import MissingPart
from app.job_progress import JobId, JobProgress
from topics.keys import ID_LENGTH
from topics.ports.live import BANDS, COLUMN_MS, HIGH_HZ, LOW_HZ, SILENCE_DB, STEPS_PER_DB

SessionId = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9A-Za-z]{{{ID_LENGTH}}}$",
        description="Identifier in all paths of the session. It is the secret that opens it: no key is asked for.",
    ),
]
NextChunk = Annotated[int, Meta(ge=0, description="Number of the next chunk to upload.")]
Seconds = Annotated[float, Meta(description="Seconds from the beginning of the audio; whole seconds as integers.")]
Time = Annotated[
    str, Meta(description="ISO 8601 in UTC, to the millisecond.", extra_json_schema={"format": "date-time"})
]
SessionError = Annotated[str, Meta(description="Why the audio cannot be analysed; absent where it can.")]


class SessionRefs(msgspec.Struct, frozen=True):
    """The state of a session."""

    session_id: SessionId
    chunk_sequence: NextChunk


class CreatedSession(msgspec.Struct, frozen=True):
    """A new session: its SessionRefs, and the geometry of its windows."""

    session_id: SessionId
    chunk_sequence: NextChunk
    window_size: Annotated[float, Meta(description="Length of a window in seconds.")]
    window_hop: Annotated[float, Meta(description="Seconds from the start of a window to that of the next one.")]


class SenseEventTag(msgspec.Struct, frozen=True):
    """A sound that was recognised in a window."""

    name: Annotated[str, Meta(description="Name of the sound; `Others` where nothing was recognised.")]
    probability: Annotated[float, Meta(ge=0, le=1, description="From 0 (impossible) to 1 (certain).")]


class SenseEvent(msgspec.Struct, frozen=True):
    """A window and what was recognised in it."""

    start_time: Seconds
    end_time: Seconds
    tags: Annotated[list[SenseEventTag], Meta(min_length=1, description="The most probable first.")]


class Page(msgspec.Struct, frozen=True):
    """Which windows an answer holds."""

    count: Annotated[int, Meta(ge=0, description="Windows in this answer.")]
    offset: Annotated[int, Meta(ge=0, description="Index of the first one.")]
    total: Annotated[int, Meta(ge=0, description="Windows that there are at the moment.")]
    next_token: Annotated[
        str | UnsetType, Meta(description="Asks for the page that follows; absent at the end of the session.")
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
    """Windows as later clients read them, and where their session stands."""

    state: Annotated[
        Literal["pending", "in-progress", "done", "error"],
        Meta(description="`pending` while chunks may come, then `in-progress`, then `done` or `error`."),
    ]
    data: list[SenseEvent]
    has_more: Annotated[bool, Meta(description="True where more windows are there, or will be.")]
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
    """Versions of the vendor's client library that are served."""

    supported_versions: list[str]


class LatestClient(msgspec.Struct, frozen=True):
    """The newest of them."""

    version: str


class SessionEntry(msgspec.Struct, frozen=True):
    """A session as a list has it."""

    session_id: SessionId
    state: Literal["writable", "readonly"]
    type: Literal["stream", "file"]
    content_type: Annotated[str, Meta(description="As the client declared it.")]
    created_at: Annotated[Time | None, Meta(description="Null of sessions that an early version has opened.")]
    updated_at: Annotated[Time, Meta(description="When the last chunk came, or the upload ended.")]
    file_name: Annotated[str | None, Meta(description="As the client named it.")]
    seconds: Annotated[float, Meta(ge=0, description="Seconds of audio that were analysed.")]
    in_progress: Annotated[bool, Meta(description="True while uploaded chunks wait for inference.")]
    error: SessionError | UnsetType = UNSET


class LiveSession(SessionEntry, frozen=True, kw_only=True):
    """A session that is listened to: sent when it is met, and when its state changes."""

    next_window: Annotated[int, Meta(ge=0, description="Number of the window that comes next here.")]
    window_size: Annotated[float, Meta(description="Length of a window in seconds.")]
    window_hop: Annotated[float, Meta(description="Seconds from the start of a window to that of the next one.")]


class Level(msgspec.Struct, frozen=True):
    """How loud a window is, in dBFS; a full-scale sine has an `rms` of -3."""

    rms: Annotated[float, Meta(ge=SILENCE_DB, description=f"{SILENCE_DB:g} is silence.")]
    peak: Annotated[float, Meta(ge=SILENCE_DB, description="Of the largest sample.")]


class Strip(msgspec.Struct, frozen=True):
    """Columns of a spectrogram: those of the time by which a window goes beyond the one before it."""

    start_time: Seconds
    columns: Annotated[
        str,
        Meta(
            description=f"Columns of {COLUMN_MS} ms, of {BANDS} bytes each: bands from {LOW_HZ:g} to {HIGH_HZ:g} Hz "
            "(or half the sample rate), even on the mel scale, the lowest first. A byte q stands for a power of "
            f"(q - 255) / {STEPS_PER_DB} dB against a full-scale sine.",
            extra_json_schema={"contentEncoding": "base64"},
        ),
    ]


class LiveWindow(msgspec.Struct, frozen=True):
    """A window of a session as it comes."""

    session_id: SessionId
    window: Annotated[int, Meta(ge=0, description="Its number.")]
    start_time: Seconds
    end_time: Seconds
    tags: Annotated[list[SenseEventTag], Meta(min_length=1, description="What is reported; the most probable first.")]
    top: Annotated[
        list[SenseEventTag], Meta(description="The five most probable sounds; from 0.5 on they are reported.")
    ]
    level: Annotated[Level | UnsetType, Meta(description="Absent where nobody listened, or it is forgotten.")] = UNSET
    strip: Annotated[Strip | UnsetType, Meta(description="Absent where none was asked for, and where `level` is.")] = (
        UNSET
    )


class LiveEnd(msgspec.Struct, frozen=True):
    """No further window of a session will come."""

    session_id: SessionId
    windows: Annotated[int, Meta(ge=0, description="How many it has.")]
    error: SessionError | UnsetType = UNSET


class LiveGone(msgspec.Struct, frozen=True):
    """A session was deleted; or it has moved to another node, where it goes on: ask again for it."""

    session_id: SessionId


class LiveBehind(msgspec.Struct, frozen=True):
    """Windows come late, since they were not read as fast as they came; without `level` where that is forgotten."""

    session_id: SessionId
    first: Annotated[int, Meta(ge=0, description="Number of the first of them.")]
    stop: Annotated[int, Meta(ge=1, description="Number of the one after the last of them.")]


class LiveMissing(msgspec.Struct, frozen=True):
    """The partitions that no node serves now; 0 once all are served."""

    partitions: Annotated[int, Meta(ge=0, description="Partitions whose sessions are not heard.")]
    of: Annotated[int, Meta(ge=1, description="Partitions that there are.")]


class LiveJob(JobProgress, frozen=True, kw_only=True):
    """How far a job is: sent when it is met, and when that changes; `completed` is its end."""

    cursor: Annotated[
        str,
        Meta(description="An id of the job's own stream: as `Last-Event-ID` it asks there for what comes next."),
    ]


class LiveJobRemoved(msgspec.Struct, frozen=True):
    """A job was deleted."""

    job_id: JobId


class LiveFault(msgspec.Struct, frozen=True):
    """The node that was asked can go on no longer: ask again."""

    error: Annotated[str, Meta(min_length=1)]


class SessionPage(msgspec.Struct, frozen=True):
    """Sessions of the project, the newest first."""

    sessions: list[SessionEntry]
    next_token: Annotated[str | UnsetType, Meta(description="Asks for the page that follows; absent at the end.")] = (
        UNSET
    )
    missing: MissingPart | UnsetType = UNSET
