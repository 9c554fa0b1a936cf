"""Python client of an Earshot service: live sessions, jobs for whole recordings, and registered speakers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._async_client import AsyncClient
from ._client import Client
from ._errors import (
    AudioRefused,
    DeadlineExceeded,
    EarshotClientError,
    EngineUnavailable,
    IncompleteList,
    JobConflict,
    JobDeleted,
    JobNotFound,
    QuotaExceeded,
    RequestRefused,
    ServiceBusy,
    ServiceUnreachable,
    SessionClosed,
    SessionFailed,
    SessionNotFound,
    SocketReplaced,
    SoundConflict,
    SoundNotFound,
    SpeakerRequestRefused,
    UnknownFormat,
    WrongKey,
    WrongSequence,
)
from ._job_values import (
    AudioLink,
    Caption,
    CaptionForm,
    CaptionResult,
    Insights,
    InsightsResult,
    Job,
    JobEntry,
    JobEvent,
    JobProgress,
    JobResult,
    JobScores,
    Overlap,
    ServiceProgress,
    ServiceResult,
    SoundResult,
    SpeechResult,
    TranslationResult,
    Turn,
    Word,
)
from ._list_values import JobPage, MissingPart, SessionPage
from ._live_values import Activity, Level, LiveEvent, LiveWindow, Strip, TagHours
from ._own_sound_values import FoundPassage, OwnSound, SoundFigures, SoundMark
from ._project_values import DailyUsage, Project, ProjectChoices, ProjectKey
from ._service_values import JobOptions
from ._session_values import (
    MICROPHONE,
    EventPage,
    Prediction,
    Run,
    Runs,
    Sensitivity,
    Session,
    SessionEntry,
    SessionKind,
    SessionOptions,
    SessionResults,
    SessionStatus,
    SoundRule,
)
from ._socket_values import (
    LevelHeard,
    SessionChanged,
    SocketEvent,
    SoundEnded,
    SoundStarted,
    WindowHeard,
)
from ._speaker_values import JobVoice, ReEnrollment, SpeakerProfile, SpeakerTurn
from ._version import VERSION as __version__
from ._window_values import Event, SoundClass, Tag, Window

if TYPE_CHECKING:
    from ._async_socket import AsyncSocket
    from ._socket import Socket

__all__ = [
    "MICROPHONE",
    "Activity",
    "AsyncClient",
    "AsyncSocket",
    "AudioLink",
    "AudioRefused",
    "Caption",
    "CaptionForm",
    "CaptionResult",
    "Client",
    "DailyUsage",
    "DeadlineExceeded",
    "EarshotClientError",
    "EngineUnavailable",
    "Event",
    "EventPage",
    "FoundPassage",
    "IncompleteList",
    "Insights",
    "InsightsResult",
    "Job",
    "JobConflict",
    "JobDeleted",
    "JobEntry",
    "JobEvent",
    "JobNotFound",
    "JobOptions",
    "JobPage",
    "JobProgress",
    "JobResult",
    "JobScores",
    "JobVoice",
    "Level",
    "LevelHeard",
    "LiveEvent",
    "LiveWindow",
    "MissingPart",
    "Overlap",
    "OwnSound",
    "Prediction",
    "Project",
    "ProjectChoices",
    "ProjectKey",
    "QuotaExceeded",
    "ReEnrollment",
    "RequestRefused",
    "Run",
    "Runs",
    "Sensitivity",
    "ServiceBusy",
    "ServiceProgress",
    "ServiceResult",
    "ServiceUnreachable",
    "Session",
    "SessionChanged",
    "SessionClosed",
    "SessionEntry",
    "SessionFailed",
    "SessionKind",
    "SessionNotFound",
    "SessionOptions",
    "SessionPage",
    "SessionResults",
    "SessionStatus",
    "Socket",
    "SocketEvent",
    "SocketReplaced",
    "SoundClass",
    "SoundConflict",
    "SoundEnded",
    "SoundFigures",
    "SoundMark",
    "SoundNotFound",
    "SoundResult",
    "SoundRule",
    "SoundStarted",
    "SpeakerProfile",
    "SpeakerRequestRefused",
    "SpeakerTurn",
    "SpeechResult",
    "Strip",
    "Tag",
    "TagHours",
    "TranslationResult",
    "Turn",
    "UnknownFormat",
    "Window",
    "WindowHeard",
    "Word",
    "WrongKey",
    "WrongSequence",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a socket class on first use: its dependencies take most of the loading time."""
    if name in ("AsyncSocket", "Socket"):
        module = import_module("._async_socket" if name == "AsyncSocket" else "._socket", __name__)
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
