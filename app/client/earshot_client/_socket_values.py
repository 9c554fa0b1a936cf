"""The messages of a live socket: the events that it yields, and those of the protocol."""

from typing import ClassVar, Final, Literal

import msgspec

from ._calls import NOT_JSON
from ._errors import ServiceUnreachable
from ._json import FOREIGN, decoded
from ._window_values import Event


class WindowHeard(Event, frozen=True, kw_only=True, tag_field="type", tag="window"):
    """A window was analysed; `sounds` are the tags that it reports.

    Attributes:
        cursor: the position after it among the events of its session.
        window: its number.
        captured_at: when its audio was captured, RFC 3339, UTC; None if no client told times.
    """

    kind: ClassVar[Literal["window"]] = "window"
    cursor: str
    window: int
    captured_at: str | None = None


class _Message(msgspec.Struct, frozen=True, tag_field="type", rename={"start": "start_time", "end": "end_time"}):
    """The base of messages, which have a `type`."""


class SoundStarted(_Message, frozen=True, tag="sound.started"):
    """A sound is on, since the window that starts at `start` seconds of the audio."""

    kind: ClassVar[Literal["sound.started"]] = "sound.started"
    cursor: str
    name: str
    start: float
    probability: float
    captured_at: str | None = None


class SoundEnded(_Message, frozen=True, tag="sound.ended"):
    """A sound is off: it was on from `start` to `end`, with `probability` as its highest."""

    kind: ClassVar[Literal["sound.ended"]] = "sound.ended"
    cursor: str
    name: str
    start: float
    end: float
    probability: float
    captured_at: str | None = None


class _SourceChanged(_Message, frozen=True):
    cursor: str
    time: str
    told: bool
    reason: str | None = None


class SourceLost(_SourceChanged, frozen=True, tag="source.lost"):
    """No audio of the source comes any more, since `time`; `told` is True if a client said so."""

    kind: ClassVar[Literal["source.lost"]] = "source.lost"


class SourceBack(_SourceChanged, frozen=True, tag="source.back"):
    """Audio of the source comes again, and is not silent."""

    kind: ClassVar[Literal["source.back"]] = "source.back"


class SourceSilent(_SourceChanged, frozen=True, tag="source.silent"):
    """Only digital silence comes from the source."""

    kind: ClassVar[Literal["source.silent"]] = "source.silent"


class LevelHeard(_Message, frozen=True, tag="level"):
    """The loudness of a window in dBFS: root mean square and largest sample. A slow reader may miss some."""

    kind: ClassVar[Literal["level"]] = "level"
    start: float
    end: float
    rms: float
    peak: float


class SessionChanged(_Message, frozen=True, tag="session"):
    """The session is `readonly` or `deleted` now; `error` says why its audio cannot be analysed."""

    kind: ClassVar[Literal["session"]] = "session"
    cursor: str
    state: str
    error: str | None = None


SourceEvent = Literal["source.lost", "source.back", "source.silent"]

#: The events that a socket yields.
SocketEvent = (
    WindowHeard | SoundStarted | SoundEnded | SourceLost | SourceBack | SourceSilent | LevelHeard | SessionChanged
)


class Limits(msgspec.Struct, frozen=True):
    """Limits of the service."""

    frame_bytes: int


class Hello(_Message, frozen=True, tag="hello"):
    """The first message of each connection."""

    session_id: str
    next_chunk: int
    cursor: str
    state: str
    limits: Limits
    content_type: str = ""
    partial_bytes: int = 0
    #: Messages `source` that the session has got; None if the service takes none.
    notes: int | None = None


class Ack(_Message, frozen=True, tag="ack"):
    """Every chunk below `next_chunk` is on disk."""

    next_chunk: int
    behind: float = 0.0
    notes: int = 0


class Warned(_Message, frozen=True, tag="warning"):
    """Something that was sent is left out; the audio is not."""

    warning: str


class End(_Message, frozen=True, tag="end"):
    """The session is readonly, and every event was sent."""


class Fault(_Message, frozen=True, tag="error"):
    """Why a connection is about to be closed."""

    status_code: int
    error: str
    retry_after: float = 0.0


class _Typed(msgspec.Struct, frozen=True):
    type: str


Message = SocketEvent | Hello | Ack | Warned | End | Fault
_decode: Final = msgspec.json.Decoder(Message).decode
_TYPES: Final = {one.__struct_config__.tag for one in Message.__args__}


def message_of(text: bytes) -> Message | None:
    """Decode a message; return None for a type that only later versions of the service have.

    Raises:
        ServiceUnreachable: it does not belong to this protocol.
    """
    try:
        message: Message = _decode(text)
    except NOT_JSON as error:
        if decoded(text, _Typed).type in _TYPES:
            raise ServiceUnreachable(f"{FOREIGN}: {error}") from None
        return None
    return message
