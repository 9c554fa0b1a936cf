"""Bodies of requests about a project's own sounds, and of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from topics.ports.own_sounds import Mark, TaughtSound
from topics.times import utc_time

Place = Annotated[float, Meta(ge=0, le=1e9)]


class NewMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passage, in seconds of the audio."""

    start: Annotated[Place, Meta(description="Where it begins.")]
    end: Annotated[Place, Meta(description="Where it ends, at most 30 s later.")]
    right: Annotated[bool, Meta(description="Whether the sound is there; false marks a similar sound.")] = True


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether new sessions and jobs report a sound."""

    on: Annotated[bool, Meta(description="Report it.")]


class ShownMark(msgspec.Struct, frozen=True):
    """A marked passage of the job or session with this id."""

    id: str
    job_id: str | None
    session_id: str | None
    start: float
    end: float
    right: bool

    @staticmethod
    def of(mark: Mark) -> ShownMark:
        job, session = (mark.source, None) if mark.job else (None, mark.source)
        return ShownMark(mark.id, job, session, mark.start_ms / 1000, mark.end_ms / 1000, mark.right)


class ShownFigures(msgspec.Struct, frozen=True):
    """How well it does; each passage is judged by a head learnt without it."""

    passages: int
    found: Annotated[float, Meta(description="Share of passages, 0 to 1.")]
    false_per_minute: Annotated[float, Meta(description="False reports a minute in recordings of many other sounds.")]
    left_out: Annotated[Sequence[str], Meta(description="Sounds that the model cannot tell from it.")]


class ShownSound(msgspec.Struct, frozen=True):
    """A sound that the project teaches."""

    name: str
    created_at: datetime
    on: Annotated[bool, Meta(description="New sessions and jobs report it.")]
    learnt_at: datetime | None
    fits: Annotated[bool, Meta(description="False: the model has changed. Mark and learn it again.")]
    figures: Annotated[dict[str, ShownFigures], Meta(description="For `streams` and `recordings`, once learnt.")]
    marks: Sequence[ShownMark]

    @staticmethod
    def of(sound: TaughtSound) -> ShownSound:
        return ShownSound(
            sound.name,
            utc_time(sound.created_at),
            sound.on,
            None if sound.learnt_at is None else utc_time(sound.learnt_at),
            sound.fits,
            {
                kind: ShownFigures(one.passages, round(one.found, 3), round(one.false_per_minute, 3), one.left_out)
                for kind, one in sound.figures.items()
            },
            [ShownMark.of(mark) for mark in sound.marks],
        )


class SoundList(msgspec.Struct, frozen=True):
    """The sounds of the project by name."""

    sounds: Sequence[ShownSound]


class FoundPassage(msgspec.Struct, frozen=True):
    """Where a sound would be reported, in seconds of the audio, and its highest probability there."""

    start: float
    end: float
    probability: float


class Findings(msgspec.Struct, frozen=True):
    """Where a sound would be reported."""

    name: str
    found: Sequence[FoundPassage]
    seconds: Annotated[float, Meta(description="Seconds searched.")]
    more: Annotated[bool, Meta(description="More passages follow.")] = False


#: Examples.
MARKED: Final = datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
LEARNT: Final = datetime(2026, 11, 22, 6, 49, tzinfo=UTC)
JOB: Final = "2nUJ5Ar7ybTNe3FmEwgGvRHd"
SESSION: Final = "0Zr4ej4rE9xaiDvNyPbkK2M3"
MARK: Final = "5sQf7WbTNe3FmEwgGvRHdXyz"
SOUND: Final = ShownSound(
    "Espresso_machine",
    MARKED,
    True,
    LEARNT,
    True,
    {"streams": ShownFigures(12, 1.0, 0.29, ()), "recordings": ShownFigures(12, 0.917, 0.3, ("vacuum_cleaner",))},
    [ShownMark(MARK, JOB, None, 12.0, 15.5, True)],
)
FOUND: Final = Findings("Espresso_machine", [FoundPassage(12.0, 17.0, 0.97)], 60.0)
