"""Alarms in answers and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from app.http.replies import Time
from topics.alarms.alarms import Alarm, Delivery
from topics.times import iso_time

#: Examples.
SESSION: Final = "0Zr4ej4rE9xaiDvNyPbkK2M3"
RULE: Final = "6vMjpkP3WbTNe3FmEwgGvRHd"
DESTINATION: Final = "4kQf7WbTNe3FmEwgGvRHdXyz"


class ShownDelivery(msgspec.Struct, frozen=True):
    """How far the delivery of an alarm to a destination came."""

    destination_id: str
    state: Annotated[
        Literal["pending", "delivered", "failed"], Meta(description="`failed` once no attempt follows by itself.")
    ]
    attempts: Annotated[int, Meta(ge=0)]
    at: Annotated[Time | None, Meta(description="Time of the next attempt, or of the last one if none follows.")]
    status: Annotated[int | None, Meta(description="HTTP status that the last attempt got.")]
    error: Annotated[str | None, Meta(description="Why the last attempt failed.")]

    @staticmethod
    def of(one: Delivery) -> ShownDelivery:
        at = iso_time(one.at) if one.at else None
        return ShownDelivery(one.destination, one.state, one.attempts, at, one.status, one.error)


class AlarmTag(msgspec.Struct, frozen=True):
    """A tag that was found, and its probability in the window that made the alarm."""

    name: str
    probability: Annotated[float, Meta(ge=0, le=1)]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found in a session."""

    session_id: str
    source: Annotated[str | None, Meta(description="Name of the stream.")]
    labels: Annotated[dict[str, str], Meta(description="Metadata of the stream.")]
    what: Annotated[
        Literal["heard", "absent", "loud", "source.lost", "source.back", "source.silent"],
        Meta(description="What was found."),
    ]
    begins_at: Annotated[Time, Meta(description="When it began.")]
    ends_at: Annotated[Time, Meta(description="Until when it was found, so far.")]
    told_by_client: Annotated[
        bool, Meta(description="The client told these times; otherwise they follow from the audio's arrival.")
    ]
    start: Annotated[float, Meta(description="Where it began in the audio, in seconds.")]
    end: Annotated[float, Meta(description="Where it ended in the audio, in seconds.")]
    tags: Annotated[Sequence[AlarmTag], Meta(description="The most probable first.")]
    level: Annotated[float | None, Meta(description="Level in dBFS of the window that made it, if the rule has one.")]
    reason: Annotated[str | None, Meta(description="Why a source was lost.")]
    left_out: Annotated[int, Meta(ge=0, description="Alarms of the rule left out since the one before.")]

    @staticmethod
    def fields(one: Alarm) -> dict[str, object]:
        return {
            "session_id": one.session,
            "source": one.source,
            "labels": one.labels,
            "what": one.what,
            "begins_at": iso_time(one.begins_at),
            "ends_at": iso_time(one.ends_at),
            "told_by_client": one.told,
            "start": one.start_ms / 1000,
            "end": one.end_ms / 1000,
            "tags": [AlarmTag(name, probability) for name, probability in one.tags],
            "level": one.level,
            "reason": one.reason,
            "left_out": one.left_out,
        }


class ShownAlarm(Found, frozen=True, kw_only=True):
    """An alarm: what a rule found in a session, and its deliveries."""

    event: ClassVar = "alarm"
    id: Annotated[str, Meta(description="The same in each attempt of each delivery.")]
    sequence: Annotated[int, Meta(ge=0, description="Counts the alarms of the session.")]
    rule_id: str
    rule: Annotated[str, Meta(description="Name of the rule when it made the alarm.")]
    made_at: Time
    false: Annotated[bool, Meta(description="Somebody said that nothing was there.")]
    deliveries: Sequence[ShownDelivery]

    @staticmethod
    def of(one: Alarm) -> ShownAlarm:
        return ShownAlarm(
            **Found.fields(one),  # type: ignore[arg-type]
            id=one.id,
            sequence=one.sequence,
            rule_id=one.rule,
            rule=one.rule_name,
            made_at=iso_time(one.made_at),
            false=one.false,
            deliveries=[ShownDelivery.of(delivery) for delivery in one.deliveries],
        )


#: Examples; the first sound is at 2026-11-22T06:30:12Z.
ALARM: Final = Alarm(
    session=SESSION,
    sequence=4,
    project="77d0b1aa",
    rule=RULE,
    rule_name="smoke alarm",
    source="kitchen",
    labels={"floor": "1"},
    window=61,
    what="heard",
    begins_at=1_795_329_012_000,
    ends_at=1_795_329_015_500,
    told=True,
    start_ms=28_000,
    end_ms=31_500,
    made_at=1_795_329_015_730,
    tags=(("Fire_smoke_alarm", 0.97),),
    deliveries=(Delivery(DESTINATION, "delivered", 1, 1_795_329_015_790, 200),),
)
SHOWN: Final = ShownAlarm.of(ALARM)
