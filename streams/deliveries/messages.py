"""What an alarm tells its destinations."""

from typing import Final

import msgspec

from topics import keys
from topics.alarms.alarms import Alarm
from topics.times import iso_time

#: Bytes of a message: Standard Webhooks recommends less than 20 kB.
MOST_BYTES: Final = 20_000

_encoder: Final = msgspec.json.Encoder()


class AlarmRuleName(msgspec.Struct, frozen=True):
    """The rule that made an alarm."""

    id: str
    name: str


class FoundTag(msgspec.Struct, frozen=True):
    """A tag that was found, with its probability in the window that made the alarm."""

    name: str
    probability: float


class AlarmData(msgspec.Struct, frozen=True):
    """An alarm for people and programs elsewhere; `docs/destinations.md` describes it."""

    id: str
    rule: AlarmRuleName
    what: str
    #: Name and metadata of the stream.
    source: str | None
    labels: dict[str, str]
    begins_at: str
    ends_at: str
    #: Whether a client told the times.
    told_by_client: bool
    tags: list[FoundTag]
    level: float | None
    reason: str | None
    #: The part of the session's id that may be shown: the whole id opens the session.
    session: str
    sequence: int
    left_out: int


class Message(msgspec.Struct, frozen=True):
    """The body of a webhook, in the form that Standard Webhooks recommends."""

    type: str
    #: When the alarm was made.
    timestamp: str
    data: AlarmData


def data(alarm: Alarm) -> AlarmData:
    return AlarmData(
        alarm.id,
        AlarmRuleName(alarm.rule, alarm.rule_name),
        alarm.what,
        alarm.source,
        alarm.labels,
        iso_time(alarm.begins_at),
        iso_time(alarm.ends_at),
        alarm.told,
        [FoundTag(name, round(probability, 4)) for name, probability in alarm.tags],
        None if alarm.level is None else round(alarm.level, 1),
        alarm.reason,
        keys.shown(alarm.session),
        alarm.sequence,
        alarm.left_out,
    )


def body(alarm: Alarm) -> bytes:
    """Return the body of a webhook, at most `MOST_BYTES`: labels that make it longer are left out."""
    message = Message("alarm", iso_time(alarm.made_at), data(alarm))
    encoded = _encoder.encode(message)
    if len(encoded) > MOST_BYTES:
        encoded = _encoder.encode(
            msgspec.structs.replace(message, data=msgspec.structs.replace(message.data, labels={}))
        )
    return encoded


def title(alarm: Alarm) -> str:
    return alarm.rule_name if alarm.source is None else f"{alarm.rule_name}: {alarm.source}"


def sentence(alarm: Alarm) -> str:
    """Return what was found, for people."""
    parts = [", ".join(f"{name} {probability:.0%}" for name, probability in alarm.tags[:3]) or alarm.what]
    if alarm.level is not None:
        parts.append(f"{alarm.level:.0f} dBFS")
    if alarm.reason is not None:
        parts.append(alarm.reason)
    if alarm.left_out:
        parts.append(f"{alarm.left_out} more left out before")
    return f"{', '.join(parts)}, {iso_time(alarm.begins_at)}"
