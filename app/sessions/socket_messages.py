"""The text messages of a live socket, as the documents describe them and as rare ones are encoded."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.http.bodies import decode
from app.http.replies import Time
from app.sessions.answers import CapturedAt, SessionId
from app.windows import Seconds, SenseEvent, encode
from topics import media
from topics.errors import BadRequest, DirectoryDown, EarshotError, Unauthorized, Unavailable
from topics.ports.sessions import SessionView
from topics.sessions import sounds
from topics.sessions.capture import LONGEST_REASON, SourceEvent
from topics.sessions.rules import SessionState

Cursor = Annotated[
    str, Meta(description="A place in the session's events: `after` continues after it.", pattern=r"^[0-9A-Za-z._-]+$")
]
#: `deleted` comes only to those who listen at that moment.
State = Literal["writable", "readonly", "deleted"]

KEY_ENDED: Final = "the key that opened this socket is no longer valid"


class Message(msgspec.Struct, frozen=True, tag_field="type"):
    """A text message."""


class Limits(msgspec.Struct, frozen=True):
    """Limits of a socket."""

    frame_bytes: Annotated[int, Meta(description="Bytes of the longest message.")]
    unacknowledged_bytes: Annotated[int, Meta(description="Bytes in flight, beyond which the server stops reading.")]
    idle_seconds: Annotated[float, Meta(description="Seconds without frame or pong until the socket is closed.")]


class Hello(Message, frozen=True, tag="hello"):
    """The first message, always."""

    session_id: SessionId
    next_chunk: Annotated[int, Meta(ge=0, description="The number of the first binary message.")]
    cursor: Cursor
    state: Literal["writable", "readonly"]
    content_type: Annotated[str, Meta(description="Of the session's audio.")]
    partial_bytes: Annotated[
        int, Meta(ge=0, description="Bytes of a sample of all channels that wait for the rest; raw PCM only.")
    ]
    notes: Annotated[int, Meta(ge=0, description="Messages `source` that the session has got so far.")]
    limits: Limits


class Ack(Message, frozen=True, tag="ack"):
    """Chunks are stored."""

    next_chunk: Annotated[int, Meta(ge=0, description="Every chunk below it is on disk.")]
    behind: Annotated[float, Meta(ge=0, description="Seconds of stored audio that wait for analysis.")]
    notes: Annotated[int, Meta(ge=0, description="As in `hello`, if this socket sent one.")] | UnsetType = UNSET


class Warned(Message, frozen=True, tag="warning"):
    """Something that the client told is left out; its audio is not."""

    warning: Annotated[str, Meta(min_length=1, description="For people: its wording may change.")]


class Window(SenseEvent, frozen=True, tag_field="type", tag="window"):
    """A window is analysed."""

    cursor: Cursor
    window: Annotated[int, Meta(ge=0, description="Its number.")]
    captured_at: CapturedAt = UNSET


class SoundEvent(Message, frozen=True, kw_only=True):
    """A sound has started or ended; its subclasses are the events that `topics.sessions.sounds` names."""

    cursor: Cursor
    session_id: Annotated[SessionId, Meta(description="In the stream of a project.")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="Of the sound.")]


class SoundStarted(SoundEvent, frozen=True, tag=sounds.STARTED, kw_only=True):
    """A sound is on."""

    start_time: Annotated[float, Meta(ge=0, description="Of the first window that reported it.")]
    probability: Annotated[float, Meta(ge=0, le=1)]
    captured_at: CapturedAt = UNSET


class SoundEnded(SoundEvent, frozen=True, tag=sounds.ENDED, kw_only=True):
    """A sound is off again."""

    start_time: Seconds
    end_time: Annotated[float, Meta(ge=0, description="Of the last window that reported it.")]
    probability: Annotated[float, Meta(ge=0, le=1, description="The highest of its windows.")]
    captured_at: CapturedAt = UNSET


class SourceChange(Message, frozen=True, kw_only=True):
    """Something happened to the source, before the windows that follow."""

    cursor: Cursor
    session_id: Annotated[SessionId, Meta(description="In the stream of a project.")] | UnsetType = UNSET
    time: Time
    told: Annotated[bool, Meta(description="True if a client told it, false if the service noticed it.")]
    reason: Annotated[str, Meta(description="For people.")] | UnsetType = UNSET


class SourceLost(SourceChange, frozen=True, tag="source.lost", kw_only=True):
    """No audio comes any more."""


class SourceBack(SourceChange, frozen=True, tag="source.back", kw_only=True):
    """Audio comes again, and is not silent."""


class SourceSilent(SourceChange, frozen=True, tag="source.silent", kw_only=True):
    """Only digital silence comes."""


class Loudness(Message, frozen=True, tag="level"):
    """How loud a window was; not replayed."""

    start_time: Seconds
    end_time: Seconds
    rms: Annotated[float, Meta(description="dBFS.")]
    peak: Annotated[float, Meta(description="dBFS.")]


class Change(Message, frozen=True, tag="session"):
    """The session has changed its state; comes after the last window, with an `error` whatever `events` says."""

    cursor: Cursor
    state: State
    error: str | UnsetType = UNSET


class End(Message, frozen=True, tag="end"):
    """The session is read-only and all events were sent; close 1000 follows."""

    cursor: Cursor


class Fault(Message, frozen=True, tag="error"):
    """Comes before a close other than 1000 or 1001."""

    status_code: Annotated[int, Meta(ge=400, le=599)]
    error: Annotated[str, Meta(min_length=1, description="For people: its wording may change.")]
    retry_after: Annotated[int, Meta(ge=0, description="Seconds.")] | UnsetType = UNSET
    next_chunk: Annotated[int, Meta(ge=0, description="Of a number that is taken.")] | UnsetType = UNSET


class Finish(Message, frozen=True, tag="end"):
    """Sent by the client: make the session read-only, after the earlier messages."""


_Told = Annotated[str, Meta(description="RFC 3339, with a zone.", extra_json_schema={"format": "date-time"})]
_Spooled = Annotated[bool, Meta(description="Kept by the client meanwhile: `time` may be up to 7 days ago.")]


class Captured(Message, frozen=True, tag="captured"):
    """Sent by the client: when the first sample that begins in the next binary message was captured. Raw PCM only."""

    time: _Told
    spooled: _Spooled = False


class SourceTold(Message, frozen=True, tag="source"):
    """Sent by the client: something happened to the source of a stream, after the earlier messages."""

    event: SourceEvent
    time: Annotated[_Told | None, Meta(description="By default now.")] = None
    reason: (
        Annotated[
            str, Meta(max_length=LONGEST_REASON, pattern=r"^[^\x00-\x1f\x7f-\x9f]*(?!\n)$", description="For people.")
        ]
        | None
    ) = None
    spooled: _Spooled = False


def name_of(kind: type[msgspec.Struct]) -> str:
    """Return the `type` of a message."""
    return str(kind.__struct_config__.tag)


#: The events of a session: the messages that clients choose from.
EVENTS: Final = (Window, SoundStarted, SoundEnded, SourceLost, SourceBack, SourceSilent, Loudness, Change)
#: Those of sounds, by name.
SOUND_EVENTS: Final = {name_of(kind): kind for kind in EVENTS if issubclass(kind, SoundEvent)}
#: Those of sources, by name.
SOURCE_EVENTS: Final[dict[str, type[SourceChange]]] = {
    name_of(kind): kind for kind in (SourceLost, SourceBack, SourceSilent)
}
#: What the server sends, and what it takes.
SENT: Final = (Hello, Ack, *EVENTS, Warned, End, Fault)
TAKEN: Final = (Finish, Captured, SourceTold)


class ClientMessage(msgspec.Struct, frozen=True):
    """What is read of a client's text message."""

    type: str


_type_of: Final = msgspec.json.Decoder(ClientMessage).decode
_DECODERS: Final[dict[str, msgspec.json.Decoder[Finish | Captured | SourceTold]]] = {
    name_of(kind): msgspec.json.Decoder(kind) for kind in TAKEN
}


def read(data: bytes) -> Finish | Captured | SourceTold:
    """Decode a text message of a client.

    Raises:
        BadRequest: it is unknown, or not as it should be.
    """
    try:
        name = _type_of(data.decode()).type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadRequest("a text message is a JSON object with a type") from None
    if (decoder := _DECODERS.get(name)) is None:
        raise BadRequest(f"type: {name[:40]!r} is not known")
    return decode(decoder, data)


def hello(session: str, view: SessionView, cursor: str, limits: Limits) -> bytes:
    """Return the greeting of a socket."""
    opened, head = view.opened, view.head
    partial = head.received % media.parse(opened.content_type).frame_bytes
    notes = 0 if head.source is None else head.source.sent
    state = shown_state(head.state)
    return encode(Hello(session, head.next, cursor, state, opened.content_type, partial, notes, limits))


def shown_state(state: SessionState) -> Literal["writable", "readonly"]:
    return "writable" if state is SessionState.WRITABLE else "readonly"


def retry_fields(error: EarshotError) -> dict[str, int]:
    """Return the fields of an error message that say when to retry."""
    return {"retry_after": error.retry_after} if isinstance(error, Unavailable | DirectoryDown) else {}


def key_failure(why: EarshotError) -> tuple[int, str, dict[str, int]]:
    """Return the status, the text and the retry fields of a close because of the key that opened a socket."""
    return (401, KEY_ENDED, {}) if isinstance(why, Unauthorized) else (503, str(why), retry_fields(why))


def error_text(status: int, text: str, fields: dict[str, int] | None = None) -> bytes:
    """Return the message that a client gets before a close that is not 1000 or 1001."""
    return encode(Fault(status, text, **(fields or {})))
