"""What makes an alarm: the rule of a project."""

from collections.abc import Collection, Mapping
from datetime import time
from functools import lru_cache
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from topics.sessions.capture import SourceEvent

#: Rules and destinations of a project.
MOST_RULES: Final = 100
MOST_DESTINATIONS: Final = 20
#: As a session takes metadata; every node has all rules in memory.
MOST_LABEL_CHARACTERS: Final = 4096
#: Alarms of one rule in a session for each minute of audio; the next alarm counts those left out.
MOST_A_MINUTE: Final = 60

#: Fields that only some kinds of rules use.
_USED: Final[Mapping[str, Collection[str]]] = {
    "heard": ("tags", "probability", "level", "duration", "gap"),
    "absent": ("tags", "probability", "duration"),
    "loud": ("level", "duration", "gap"),
    "source": ("events",),
}

Name = Annotated[str, Meta(min_length=1, max_length=60)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class TimeOfDay(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of each day; if it begins after its end, it goes past midnight."""

    begins: Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d(?!\n)$", examples=["22:00"])]
    ends: Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d(?!\n)$", examples=["06:00"])]
    zone: Annotated[str, Meta(max_length=64, description="IANA name.", examples=["Europe/Berlin"])] = "UTC"

    def __post_init__(self) -> None:
        if self.begins == self.ends:
            raise ValueError("begins and ends are the same time")
        zone_of(self.zone)

    @property
    def bounds(self) -> tuple[time, time]:
        return time.fromisoformat(self.begins), time.fromisoformat(self.ends)


class AlarmRule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When an alarm is made, and where it is sent."""

    name: Annotated[Name, Meta(description="Unique in the project.", examples=["smoke alarm"])]
    when: Annotated[
        Literal["heard", "absent", "loud", "source"],
        Meta(
            description="One of the tags is heard; none of them is; the level is high; something happens to a source. "
            "Fields for other kinds of rules are refused."
        ),
    ] = "heard"
    tags: Annotated[
        tuple[str, ...], Meta(max_length=64, description="Tags, own sounds, or classes. For `heard` and `absent`.")
    ] = ()
    probability: Annotated[
        float, Meta(ge=0.01, le=0.9999, description="From which a tag counts as heard. For `heard` and `absent`.")
    ] = 0.5
    level: Annotated[
        float | None, Meta(description="dBFS (RMS of a window). For `loud`, and for `heard` if both must hold.")
    ] = None
    events: Annotated[tuple[SourceEvent, ...], Meta(description="For `source`.")] = ()
    duration: Annotated[Seconds, Meta(description="For how many seconds it must hold. Not for `source`.")] = 0.0
    gap: Annotated[
        float, Meta(ge=0, le=60, description="Pauses of up to so many seconds do not end it. For `heard` and `loud`.")
    ] = 2.0
    source: Annotated[
        Annotated[str, Meta(max_length=200)] | None, Meta(description="Name of the stream; null for all.")
    ] = None
    labels: Annotated[dict[str, str], Meta(max_length=16, description="Metadata that the stream must have.")] = {}
    during: Annotated[TimeOfDay | None, Meta(description="Null for the whole day.")] = None
    first_of_day: Annotated[bool, Meta(description="Only the first of a day, in the zone of `during`.")] = False
    cooldown: Annotated[Seconds, Meta(description="Seconds without another alarm of the same stream.")] = 60.0
    destinations: Annotated[tuple[str, ...], Meta(max_length=MOST_DESTINATIONS, description="Ids.")] = ()
    enabled: Annotated[bool, Meta(description="Makes alarms.")] = True

    def __post_init__(self) -> None:
        if self.when in ("heard", "absent") and not self.tags:
            raise ValueError(f"a rule for {self.when!r} needs tags")
        if self.when == "loud" and self.level is None:
            raise ValueError("a rule for 'loud' needs a level")
        if self.when == "absent" and not self.duration:
            raise ValueError("a rule for 'absent' needs a duration")
        if sum(map(len, (*self.labels, *self.labels.values()))) > MOST_LABEL_CHARACTERS:
            raise ValueError(f"labels: have more than {MOST_LABEL_CHARACTERS} characters")
        if self.when == "source" and not self.events:
            raise ValueError("a rule for 'source' needs events")
        for field, default in unused(self.when).items():
            if getattr(self, field) != default:
                raise ValueError(f"{field}: a rule for {self.when!r} takes none")


@lru_cache
def unused(when: str) -> Mapping[str, Any]:
    """Return the fields that a kind of rule does not use, each with its default."""
    others = {field for used in _USED.values() for field in used} - {*_USED.get(when, ())}
    return {field.name: field.default for field in msgspec.structs.fields(AlarmRule) if field.name in others}


class StoredRule(msgspec.Struct, frozen=True):
    """A rule of a project, as it is stored."""

    id: str
    project: str
    #: Grows with each change; a changed rule begins anew.
    revision: int
    rule: AlarmRule


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone; raise ValueError if there is none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"zone: there is no time zone {name!r}") from error
