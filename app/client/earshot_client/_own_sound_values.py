"""Sounds that the project teaches, their marks, and where they would be reported."""

from collections.abc import Mapping
from datetime import datetime

import msgspec


class SoundMark(msgspec.Struct, frozen=True):
    """A marked passage of a job's recording or of a session.

    Attributes:
        id: of the mark.
        job_id: the job; None for a session.
        session_id: the session; None for a job.
        start: seconds from the beginning of the audio.
        end: seconds from the beginning of the audio.
        right: True if the sound is there, False if the passage only resembles it.
    """

    id: str
    job_id: str | None
    session_id: str | None
    start: float
    end: float
    right: bool


class SoundFigures(msgspec.Struct, frozen=True):
    """How well a sound was learnt. Each passage is judged by a model that was learnt without it.

    Attributes:
        passages: number of marked passages.
        found: share of them that is found, 0 to 1.
        false_per_minute: false reports a minute in recordings of many other sounds.
        left_out: sounds that the model cannot distinguish from it.
    """

    passages: int
    found: float
    false_per_minute: float
    left_out: tuple[str, ...] = ()


class OwnSound(msgspec.Struct, frozen=True):
    """A sound that the project teaches.

    Attributes:
        on: True if new sessions and jobs report it.
        learnt_at: when it was learnt last; None before.
        fits: False if the service's model has changed: mark and learn the sound again.
        figures: for `streams` and for `recordings`; empty before it is learnt.
        marks: its marked passages.
    """

    name: str
    created_at: datetime
    on: bool
    learnt_at: datetime | None
    fits: bool
    figures: Mapping[str, SoundFigures]
    marks: tuple[SoundMark, ...]


class FoundPassage(msgspec.Struct, frozen=True):
    """Where a sound would be reported, in seconds of the audio, and its highest probability there."""

    start: float
    end: float
    probability: float
