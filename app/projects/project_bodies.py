"""Bodies about a project: itself, its key, its usage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.sound_rules import SoundRuleFields, shown_rule
from topics.ports.ledger import MeteredService
from topics.ports.models import ModelFacts, TagFacts, TagFigures
from topics.ports.projects import DailyUsage, ProjectAccount
from topics.times import utc_time


class ShownKey(msgspec.Struct, frozen=True):
    """The project's live key; `shown_as` is its first and last characters."""

    shown_as: str
    created_at: datetime
    #: To the minute, null if it was never used.
    last_used_at: datetime | None


class ProjectReport(msgspec.Struct, frozen=True):
    """A project; `used_seconds` are those of its jobs in this month (UTC), of which `free_seconds` are free."""

    id: str
    name: str
    organization: str
    created_at: datetime
    key: ShownKey
    #: Null if unlimited.
    free_seconds: int | None
    used_seconds: float
    #: How long a job's audio is kept after acceptance; null if the project has not chosen.
    keep_audio_seconds: int | None
    #: The default of that time, and the longest that a project may choose.
    default_keep_audio_seconds: int
    longest_keep_audio_seconds: int
    #: When a sound is on in its sessions; null if the project has not chosen.
    sound_rule: SoundRuleFields | None
    #: The same for individual sounds, by name.
    sound_rules: dict[str, SoundRuleFields]
    #: Store the embeddings of its sessions and jobs, from which own sounds are learnt.
    keep_embeddings: bool

    @staticmethod
    def of(one: ProjectAccount, default_seconds: int, longest_seconds: int) -> ProjectReport:
        """Return a project as clients see it, with the default and the longest time that job audio is kept."""
        last = one.key.last_used_at
        key = ShownKey(one.key.shown, utc_time(one.key.created_at), None if last is None else utc_time(last))
        return ProjectReport(
            one.id,
            one.name,
            one.organization,
            utc_time(one.created_at),
            key,
            one.free_seconds,
            one.used_ms / 1000,
            # The operator may have lowered the limit since.
            None if one.keep_audio_seconds is None else min(one.keep_audio_seconds, longest_seconds),
            default_seconds,
            longest_seconds,
            None if one.rules.rule is None else shown_rule(one.rules.rule),
            {name: shown_rule(rule) for name, rule in one.rules.by_name.items()},
            one.keep_embeddings,
        )


class ProjectChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a project; omitted fields stay as they are."""

    keep_audio_seconds: Annotated[
        int | UnsetType | None,
        Meta(description="How long the audio of jobs is kept; 0: until they are done, null: the operator's default."),
    ] = UNSET
    sound_rule: Annotated[
        SoundRuleFields | UnsetType | None,
        Meta(description="When a sound is on in sessions opened from now on; null for the service's rule."),
    ] = UNSET
    sound_rules: Annotated[
        dict[str, SoundRuleFields] | UnsetType,
        Meta(description="The same for single sounds, by name; replaces all their earlier rules."),
    ] = UNSET
    keep_embeddings: Annotated[
        bool | UnsetType,
        Meta(description="Keep what own sounds are learnt from with each window: 192 numbers of the second model."),
    ] = UNSET


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
MADE: Final = datetime(2026, 11, 1, 9, 30, tzinfo=UTC)
USED: Final = datetime(2026, 11, 22, 6, 49, tzinfo=UTC)
BARN: Final = ProjectReport(
    "77d0b1aa",
    "Barn",
    "Farm",
    MADE,
    ShownKey("esp_...stuv", MADE, USED),
    1200,
    42.5,
    3600,
    0,
    86_400,
    None,
    {"Siren": SoundRuleFields(2, 3, 10.0)},
    False,
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
