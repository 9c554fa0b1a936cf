"""Bodies of requests about rules, destinations and alarms, and of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from app.cluster.cursors import ListCursors
from app.cluster.lists import MissingPart
from app.shown_alarms import ALARM, DESTINATION, RULE, SESSION, SHOWN, ShownAlarm
from topics.alarms.rules import AlarmRule, Name, StoredRule, TimeOfDay
from topics.ports.alarms import Destination
from topics.ports.lists import ListQuery

_RULE: Final = {field.name: field.type for field in msgspec.structs.fields(AlarmRule)}

#: A rule of the project: the fields of `AlarmRule`, all present.
ShownRule: Final = msgspec.defstruct(
    "ShownRule",
    [("id", str), ("revision", Annotated[int, Meta(description="Grows with each change.")]), *_RULE.items()],
    namespace={"__doc__": "A rule of the project."},
    frozen=True,
)


def shown_rule(one: StoredRule) -> Any:
    return ShownRule(id=one.id, revision=one.revision, **asdict(one.rule))


class RuleList(msgspec.Struct, frozen=True):
    """The rules of the project by name."""

    rules: Sequence[ShownRule]  # type: ignore[valid-type]


Url = Annotated[
    str,
    Meta(min_length=1, max_length=2000, description="Without user and password. The path of `ntfy` is its topic."),
]
NamedUniquely = Annotated[Name, Meta(description="Unique in the project.")]
User = Annotated[
    Annotated[str, Meta(max_length=200)] | None, Meta(description="For basic authentication, and of MQTT.")
]
Enabled = Annotated[bool, Meta(description="Alarms are sent to it.")]
Password = Annotated[str, Meta(max_length=2000)]
Options = Annotated[dict[str, str], Meta(max_length=16, description="What else the kind takes.")]
Kind = Annotated[Literal["webhook", "mqtt", "ntfy"], Meta(description="How alarms are sent.")]


class NewDestination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where alarms are sent."""

    name: NamedUniquely
    kind: Kind
    url: Url
    user: User = None
    password: Annotated[Password | None, Meta(description="A password or token. It is never shown again.")] = None
    options: Options = {}
    enabled: Enabled = True


class DestinationChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A destination as it is to be; without `password` that stays as it is."""

    name: NamedUniquely
    url: Url
    user: User = None
    password: Annotated[Password | UnsetType | None, Meta(description="A password or token; null for none.")] = UNSET
    options: Options = {}
    enabled: Enabled = True


class ShownDestination(msgspec.Struct, frozen=True):
    """Where alarms are sent, without secrets."""

    id: str
    name: str
    kind: Kind
    url: str
    user: str | None
    has_password: bool
    options: dict[str, str]
    enabled: bool
    fault: Annotated[str | None, Meta(description="Why the service switched it off.")]

    @staticmethod
    def of(one: Destination) -> ShownDestination:
        has = one.password is not None
        return ShownDestination(
            one.id, one.name, one.kind, one.url, one.user, has, dict(one.options), one.enabled, one.fault
        )


class DestinationList(msgspec.Struct, frozen=True):
    """The destinations of the project by name."""

    destinations: Sequence[ShownDestination]


class MadeDestination(msgspec.Struct, frozen=True):
    """A new destination, and the secret that signs its messages if it is a webhook."""

    destination: ShownDestination
    secret: Annotated[str | None, Meta(description="Shown once. As Standard Webhooks has it.")]


class NewSecret(msgspec.Struct, frozen=True):
    """A secret, shown once."""

    secret: str


class AlarmPage(msgspec.Struct, frozen=True):
    """Alarms of the project, the newest first."""

    alarms: Sequence[ShownAlarm]
    next_token: Annotated[str | UnsetType, Meta(description="Token for earlier entries, if there are any.")] = UNSET
    missing: MissingPart | UnsetType = UNSET


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether an alarm was false."""

    false: Annotated[bool, Meta(description="Nothing was there.")]


#: Examples.
SMOKE: Final = AlarmRule("smoke alarm", tags=("Fire_smoke_alarm",), duration=3.0, destinations=(DESTINATION,))
NIGHT: Final = AlarmRule("glass at night", tags=("Glass_break",), during=TimeOfDay("22:00", "06:00", "Europe/Berlin"))
SHOWN_SMOKE: Final = shown_rule(StoredRule(RULE, "", 1, SMOKE))
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PHONE: Final = NewDestination("phone", "ntfy", "https://ntfy.example.org/house", options={"priority": "5"})
HOOK: Final = NewDestination("home", "webhook", "https://home.example.org/alarms")
SHOWN_HOOK: Final = ShownDestination(DESTINATION, HOOK.name, HOOK.kind, HOOK.url, None, False, {}, True, None)
LIST_TOKEN: Final = ListCursors(bytes(16)).issue("alarms", ListQuery("project"), (ALARM.made_at, f"{SESSION}.4"))
PAGE: Final = AlarmPage([SHOWN])
