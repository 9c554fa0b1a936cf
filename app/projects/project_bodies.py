"""Bodies about a project: itself, its key, its usage. Those about its choices are derived from `Choices`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from topics.choices import Choices, SoundRule
from topics.ports.ledger import MeteredService
from topics.ports.models import ModelFacts, TagFacts, TagFigures
from topics.ports.projects import DailyUsage, ProjectAccount, ProjectKey
from topics.times import utc_time


class ShownKey(msgspec.Struct, frozen=True):
    """The project's live key; `shown_as` is its first and last characters."""

    shown_as: str
    created_at: datetime
    #: To the minute, null if it was never used.
    last_used_at: datetime | None


class ProjectFacts(msgspec.Struct, frozen=True):
    """A project; `used_seconds` are those of its jobs in this month (UTC), of which `free_seconds` are free."""

    id: str
    name: str
    organization: str
    created_at: datetime
    key: ShownKey
    #: Null if unlimited.
    free_seconds: int | None
    used_seconds: float
    #: The choice in force, its default, and the longest time that a project may choose.
    keep_audio_seconds: int | None
    default_keep_audio_seconds: int
    longest_keep_audio_seconds: int


_CHOICES: Final = {field.name: field.type for field in msgspec.structs.fields(Choices)}
_FACTS: Final = {field.name: field.type for field in msgspec.structs.fields(ProjectFacts)}

#: The facts and the choices of a project.
ProjectReport: Final = msgspec.defstruct(
    "ProjectReport", (_FACTS | _CHOICES).items(), namespace={"__doc__": ProjectFacts.__doc__}, frozen=True
)
#: Changes of its choices.
ProjectChange: Final = msgspec.defstruct(
    "ProjectChange",
    [(name, Annotated[kind.__origin__ | UnsetType, *kind.__metadata__], UNSET) for name, kind in _CHOICES.items()],
    namespace={"__doc__": "Changes of a project; omitted fields stay as they are."},
    frozen=True,
    forbid_unknown_fields=True,
)


def report_of(one: ProjectAccount, default_seconds: int, longest_seconds: int) -> msgspec.Struct:
    """Return a project as clients see it, with the default and the longest time that job audio is kept."""
    last, kept = one.key.last_used_at, one.choices.keep_audio_seconds
    facts = ProjectFacts(
        one.id,
        one.name,
        one.organization,
        utc_time(one.created_at),
        ShownKey(one.key.shown, utc_time(one.key.created_at), None if last is None else utc_time(last)),
        one.free_seconds,
        one.used_ms / 1000,
        # The operator may have lowered the limit since.
        None if kept is None else min(kept, longest_seconds),
        default_seconds,
        longest_seconds,
    )
    return ProjectReport(**asdict(one.choices) | asdict(facts))


class NewKey(msgspec.Struct, frozen=True):
    """A key, shown once."""

    key: str


class UsageRow(msgspec.Struct, frozen=True):
    """The use of one service on one day (UTC)."""

    day: date
    service: MeteredService
    #: Jobs, or sessions.
    jobs: int
    seconds: float

    @staticmethod
    def of(one: DailyUsage) -> UsageRow:
        return UsageRow(date.fromisoformat(one.day), one.service, one.jobs, one.audio_ms / 1000)


class ShownUsage(msgspec.Struct, frozen=True):
    """The usage of some days; both ends are included."""

    since: date
    until: date
    rows: list[UsageRow]


class ModelList(msgspec.Struct, frozen=True):
    """The models in use."""

    models: Sequence[ModelFacts]
    #: Change of each operating point's logit with a step of sensitivity: up for fewer reports.
    sensitivity_logits: float


#: Examples.
DAY: Final = date(2026, 11, 22)
#: 2026-11-01T09:30:00Z.
MADE: Final = 1_793_525_400_000
#: 2026-11-22T06:49:00Z.
USED: Final = 1_795_330_140_000
BARN: Final = report_of(
    ProjectAccount(
        "77d0b1aa",
        "Barn",
        "Farm",
        MADE,
        ProjectKey("esp_...stuv", MADE, USED),
        1200,
        42_500,
        Choices(3600, sound_rules={"Siren": SoundRule(2, 3, 10.0)}),
    ),
    0,
    86_400,
)
USAGE: Final = ShownUsage(date(2026, 11, 1), DAY, [UsageRow(DAY, MeteredService.SOUND, 3, 42.5)])
DOG: Final = TagFacts("Dog_bark", "Animal", 0.2788, 32, TagFigures(32, 30, 31, 30, 0.938, 0.968, 0.971, False))
YAMNET: Final = ModelFacts(
    id="yamnet@e1f174ba-71e54a",
    kind="sound-events",
    name="yamnet",
    version="1",
    licence="Apache-2.0",
    source="https://tfhub.dev/google/lite-model/yamnet/classification/tflite/1",
    sha256="e1f174baa8af1d27e494c6ebcef80741ce80572d5e0873554c65502a458ce4b9",
    sample_rate=16_000,
    window_seconds=0.975,
    hop_seconds=0.5,
    classes=521,
    how_measured="617 clips of five seconds of 50 sounds",
    recordings=617,
    tags=[DOG, TagFacts("Siren", "Alarm", 0.4, 0, None)],
)
MODELS: Final = ModelList([YAMNET], 0.7)
