"""Rules of alarms, destinations, and alarms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from ._missing_part import MissingPart


class TimeOfDay(msgspec.Struct, frozen=True):
    """A part of each day.

    Attributes:
        begins: as `22:00`.
        ends: as `06:00`; before `begins` if it goes past midnight.
        zone: IANA name, such as `Europe/Berlin`.
    """

    begins: str
    ends: str
    zone: str = "UTC"


class AlarmRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When an alarm is made, and where it is sent.

    Attributes:
        name: unique in the project.
        when: `heard` (one of the tags is), `absent` (none of them is), `loud`, or `source` (something happens to it).
        tags: tags of the model, own sounds, and classes of tags; for `heard` and `absent`.
        probability: from which a tag counts as heard, 0.01 to 0.9999; for `heard` and `absent`.
        level: dBFS; for `loud`, and for `heard` if both must hold.
        events: `source.lost`, `source.back`, `source.silent`; for `source`.
        duration: seconds for which it must hold; not for `source`.
        gap: pauses of up to so many seconds do not end it; for `heard` and `loud`.
        source: name of the stream; None for all.
        labels: metadata that the stream must have.
        during: part of the day; None for all of it.
        first_of_day: only the first alarm of a day, in the zone of `during`.
        cooldown: seconds without another alarm of the same stream.
        destinations: ids.
        enabled: makes alarms.
        id: of the rule; empty for a new one.
        revision: grows with each change.
    """

    name: str
    when: str = "heard"
    tags: tuple[str, ...] = ()
    probability: float = 0.5
    level: float | None = None
    events: tuple[str, ...] = ()
    duration: float = 0.0
    gap: float = 2.0
    source: str | None = None
    labels: Mapping[str, str] = {}
    during: TimeOfDay | None = None
    first_of_day: bool = False
    cooldown: float = 60.0
    destinations: tuple[str, ...] = ()
    enabled: bool = True
    id: str = ""
    revision: int = 0


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Where alarms are sent.

    Attributes:
        id: empty for a new one.
        name: unique in the project.
        kind: `webhook`, `mqtt` or `ntfy`.
        url: without user and password.
        user: its user; None without one.
        has_password: True if the service has a password or token for it.
        options: what else the kind takes.
        enabled: alarms are sent to it.
        fault: why the service switched it off.
    """

    name: str
    kind: str
    url: str
    user: str | None = None
    options: Mapping[str, str] = {}
    enabled: bool = True
    has_password: bool = False
    fault: str | None = None
    id: str = ""


class AddedDestination(msgspec.Struct, frozen=True):
    """A new destination, and the secret that signs its messages if it is a webhook; it is shown once."""

    destination: Destination
    secret: str | None = None


class AlarmDelivery(msgspec.Struct, frozen=True):
    """How far the delivery of an alarm, or of a test message, came.

    Attributes:
        destination_id: where it goes.
        state: `pending`, `delivered`, or `failed` once no attempt follows by itself.
        attempts: how many there were.
        at: time of the next attempt, or of the last one if none follows.
        status: HTTP status that the last attempt got.
        error: why the last attempt failed.
    """

    destination_id: str
    state: str
    attempts: int
    at: datetime | None = None
    status: int | None = None
    error: str | None = None


class AlarmTag(msgspec.Struct, frozen=True):
    """A tag that was found, and its probability in the window that made the alarm."""

    name: str
    probability: float


class AlarmFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found in a session.

    Attributes:
        session_id: the session.
        source: name of the stream.
        labels: metadata of the stream.
        what: `heard`, `absent`, `loud`, or the event of a source.
        begins_at: when it began.
        ends_at: until when it was found, so far.
        told_by_client: True if the client told these times; otherwise they follow from the arrival of the audio.
        start: seconds from the beginning of the audio.
        end: seconds from the beginning of the audio.
        tags: the most probable first.
        level: of that window in dBFS, if the rule has one.
        reason: why a source was lost.
        left_out: alarms of the rule that were left out since the one before.
    """

    session_id: str
    source: str | None
    labels: Mapping[str, str]
    what: str
    begins_at: datetime
    ends_at: datetime
    told_by_client: bool
    start: float
    end: float
    tags: tuple[AlarmTag, ...] = ()
    level: float | None = None
    reason: str | None = None
    left_out: int = 0


class Alarm(AlarmFound, frozen=True, kw_only=True):
    """An alarm, and its deliveries.

    Attributes:
        id: the same in each attempt of each delivery.
        sequence: counts the alarms of the session.
        rule_id: the rule that made it.
        rule: its name then.
        made_at: when it was made.
        false: somebody said that nothing was there.
        deliveries: one for each destination of the rule.
    """

    id: str
    sequence: int
    rule_id: str
    rule: str
    made_at: datetime
    false: bool
    deliveries: tuple[AlarmDelivery, ...] = ()


class RuleTrial(msgspec.Struct, frozen=True):
    """The alarms that a rule would have made on a day.

    Attributes:
        day: `YYYY-MM-DD`.
        offset_minutes: how far the clock of the day is ahead of UTC.
        alarms: the newest first; at most the newest 200.
        total: how many there would have been.
        sessions: how many had audio on this day and fit the rule.
        left_out: how many of them were not searched completely.
        missing: the part on nodes that did not answer.
    """

    day: str
    offset_minutes: int
    alarms: tuple[AlarmFound, ...]
    total: int
    sessions: int
    left_out: int = 0
    missing: MissingPart | None = None
