"""The messages of a live socket: events, and what carries them."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from ._json import decoded
from ._session_values import Event


class WindowHeard(Event, frozen=True, kw_only=True, tag_field="type", tag="window"):
    """A window was analysed; `sounds` are the tags that it reports.

    Attributes:
        cursor: the place behind it among the events of its session.
        window: its number.
    """

    kind: ClassVar[str] = "window"
    cursor: str
    window: int


class SoundStarted(msgspec.Struct, frozen=True, tag_field="type", tag="sound.started", rename={"start": "start_time"}):
    """A sound is on.

    Attributes:
        cursor: the place behind it among the events of its session.
        name: the tag.
        start: of the first window that reported it, seconds from the beginning of the audio.
        probability: 0 to 1.
    """

    kind: ClassVar[str] = "sound.started"
    cursor: str
    name: str
    start: float
    probability: float


class SoundEnded(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag="sound.ended",
    rename={"start": "start_time", "end": "end_time"},
):
    """A sound is off again.

    Attributes:
        cursor: the place behind it among the events of its session.
        name: the tag.
        start: of the first window that reported it, seconds from the beginning of the audio.
        end: of the last window that reported it.
        probability: the highest of its windows, 0 to 1.
    """

    kind: ClassVar[str] = "sound.ended"
    cursor: str
    name: str
    start: float
    end: float
    probability: float


class LevelHeard(
    msgspec.Struct, frozen=True, tag_field="type", tag="level", rename={"start": "start_time", "end": "end_time"}
):
    """How loud a window was, in dBFS. It is not replayed: a slow reader may miss some.

    Attributes:
        start: seconds from the beginning of the audio.
        end: seconds from the beginning of the audio.
        rms: root mean square.
        peak: the largest sample.
    """

    kind: ClassVar[str] = "level"
    start: float
    end: float
    rms: float
    peak: float


class SessionChanged(msgspec.Struct, frozen=True, tag_field="type", tag="session", omit_defaults=True):
    """The session has changed its state. It comes behind the last window.

    Attributes:
        cursor: the place behind it among the events of its session.
        state: `writable` or `readonly`.
        error: why the audio cannot be analysed, None where it can.
    """

    kind: ClassVar[str] = "session"
    cursor: str
    state: str
    error: str | None = None


class OtherEvent(msgspec.Struct, frozen=True):
    """An event of a kind that this version of the package does not know.

    Attributes:
        kind: its type.
        cursor: the place behind it among the events of its session, None where it is not replayed.
        data: the event as JSON.
    """

    kind: str
    cursor: str | None
    data: bytes


#: What a socket yields.
SocketEvent = WindowHeard | SoundStarted | SoundEnded | LevelHeard | SessionChanged | OtherEvent


class Head(msgspec.Struct, frozen=True):
    """What every message has."""

    type: str
    cursor: str | None = None


class Limits(msgspec.Struct, frozen=True):
    """What the service takes."""

    frame_bytes: int


class Hello(Head, frozen=True, kw_only=True):
    """The first message of each connection."""

    cursor: str
    session_id: str
    next_chunk: int
    state: str
    limits: Limits


class Ack(msgspec.Struct, frozen=True):
    """Every chunk below `next_chunk` is on disk."""

    next_chunk: int
    behind: float = 0.0


class Fault(msgspec.Struct, frozen=True):
    """Why a connection is about to be closed."""

    status_code: int
    error: str
    retry_after: float = 0.0


_KNOWN: Final[dict[str, type[SocketEvent]]] = {
    one.kind: one for one in (WindowHeard, SoundStarted, SoundEnded, LevelHeard, SessionChanged)
}


def event_of(head: Head, text: bytes) -> SocketEvent:
    """Return the event that a message is.

    Raises:
        ServiceUnreachable: it has not the fields of its type.
    """
    kind = _KNOWN.get(head.type)
    return OtherEvent(head.type, head.cursor, text) if kind is None else decoded(text, kind)
