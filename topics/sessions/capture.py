"""When the audio of a session was captured, and what happened to its source."""

from typing import Literal, NamedTuple

import msgspec

SourceEvent = Literal["source.lost", "source.back", "source.silent"]


class CaptureTime(NamedTuple):
    """Unix time (ms) of a position in a session's audio."""

    at_ms: int
    #: Whether a client told it; otherwise it follows from the time at which the service got the audio.
    told: bool


class SourceNote(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened to the source of a session."""

    #: Counts the notes of the session from 0.
    number: int
    event: SourceEvent
    at_ms: int
    #: Whether a client told it, otherwise the service noticed.
    told: bool
    reason: str | None = None
    #: Number of the first window that came after it.
    window: int = 0
