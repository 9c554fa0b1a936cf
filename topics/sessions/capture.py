"""When the audio of a session was captured, and what happened to its source."""

from typing import Final, Literal, NamedTuple

import msgspec

from topics.service_time import MINUTE_MS
from topics.times import HOUR_MS

SourceEvent = Literal["source.lost", "source.back", "source.silent"]
#: Longest reason of a note, in characters.
LONGEST_REASON: Final = 200
#: Notes of a session an hour: half of them may come at once, and the others as time passes.
MOST_NOTES: Final = 1000
_NOTE_MS: Final = 2 * HOUR_MS // MOST_NOTES
#: A told time makes an anchor if it differs by more (ms) from what the last anchor predicts.
TOLERANCE_MS: Final = 20
#: Audio that comes later by more (ms) after a pause, if the client tells no times.
PAUSE_MS: Final = 5000
#: Anchors a minute of audio, so that a clock that drifts does not make one for each chunk: half of them may come at
#: once, and the others as the audio goes on.
MOST_ANCHORS: Final = 40
_ANCHOR_MS: Final = 2 * MINUTE_MS // MOST_ANCHORS


class CaptureTime(NamedTuple):
    """Unix time (ms) of a position in a session's audio."""

    at_ms: int
    #: Whether a client told it; otherwise it follows from the time at which the service got the audio.
    told: bool


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """The capture time of a place in a session's audio; later places follow from it, up to the next anchor."""

    #: Position in the audio (ms) from the bytes that came before, which are raw PCM.
    position_ms: int
    #: As in `CaptureTime`.
    at_ms: int
    told: bool
    #: Where the chunk that begins here is on the log.
    offset: int = -1
    #: Position (ms) from which on the next anchor keeps to `MOST_ANCHORS`.
    due_ms: int = 0

    def at(self, position_ms: int) -> int:
        return self.at_ms + position_ms - self.position_ms


def next_anchor(last: Anchor, position_ms: int, at_ms: int, told: bool, offset: int) -> Anchor | None:
    """Return the anchor of a chunk that was captured at a time, None if the last one predicts it, or too many came.

    The first time that a client tells is an anchor in any case.
    """
    if told and last.told and abs(at_ms - last.at(position_ms)) <= TOLERANCE_MS:
        return None
    due = max(last.due_ms, position_ms) + _ANCHOR_MS
    return None if due - position_ms > MINUTE_MS else Anchor(position_ms, at_ms, told, offset, due)


class SourceNote(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened to the source of a session."""

    #: Counts the notes of the session from 0.
    number: int
    event: SourceEvent
    at_ms: int
    #: Whether a client told it, otherwise the service noticed.
    told: bool
    reason: str | None = None
    #: Number of the first window that came after it; known once the rules of alarms were evaluated.
    window: int = 0
    #: Number of the first chunk that came after it.
    chunk: int = 0
    #: Where it is on the log.
    offset: int = -1


class SourceState(msgspec.Struct, frozen=True, array_like=True):
    """What a session knows of its source."""

    #: The last note.
    event: SourceEvent
    at_ms: int
    told: bool
    #: Number of notes, and of those that clients sent, refused ones too.
    notes: int
    sent: int
    #: Log time (ms) from which on the next note keeps to `MOST_NOTES`.
    due: int


def noted(
    state: SourceState | None, event: SourceEvent, at_ms: int, told: bool, now_ms: int
) -> tuple[SourceState, bool]:
    """Return the state of a source after a note at the log time `now_ms`, and whether the note is one too many."""
    before = state or SourceState("source.back", 0, False, 0, 0, 0)
    sent, due = before.sent + told, max(before.due, now_ms)
    if due + _NOTE_MS - now_ms > HOUR_MS:
        return msgspec.structs.replace(before, sent=sent), True
    return SourceState(event, at_ms, told, before.notes + 1, sent, due + _NOTE_MS), False
