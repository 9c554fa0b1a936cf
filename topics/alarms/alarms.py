"""Alarms and their deliveries, as rows of the partition of their session."""

import hashlib
from typing import Literal

import msgspec


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """How far the delivery of an alarm to one destination came."""

    destination: str
    state: Literal["pending", "delivered", "failed"] = "pending"
    attempts: int = 0
    #: Log time (ms) of the next attempt, or of the last one if none follows.
    at: int = 0
    #: What the last attempt got: an HTTP status, and a sentence if it failed.
    status: int | None = None
    error: str | None = None


class Alarm(msgspec.Struct, frozen=True, array_like=True):
    """Something that a rule found in a session."""

    session: str
    #: Counts the alarms of the session from 0.
    sequence: int
    project: str
    rule: str
    rule_name: str
    #: Name and metadata of the stream.
    source: str | None
    labels: dict[str, str]
    #: Number of the window, or of the note (`SourceNote`), that made it.
    window: int
    #: What was found: "heard", "absent", "loud", or the event of a source.
    what: str
    #: Unix time (ms) of the beginning and end of what was found, and whether a client told it.
    begins_at: int
    ends_at: int
    told: bool
    #: Position in the session's audio (ms).
    start_ms: int
    end_ms: int
    #: Log time (ms) when it was made.
    made_at: int
    #: Name and probability of each tag that was found in the window that made it, the most probable first.
    tags: tuple[tuple[str, float], ...] = ()
    #: Level (dBFS) of that window, if the rule has one.
    level: float | None = None
    reason: str | None = None
    #: Alarms left out since the one before (`MOST_A_MINUTE`).
    left_out: int = 0
    #: Somebody said that nothing was there.
    false: bool = False
    deliveries: tuple[Delivery, ...] = ()

    @property
    def pending(self) -> tuple[Delivery, ...]:
        return tuple(one for one in self.deliveries if one.state == "pending")

    @property
    def id(self) -> str:
        """The same after each crash, on each node, in each attempt. Notes are numbered apart from windows."""
        kind = "note." if self.what.startswith("source.") else ""
        place = f"{self.rule}.{self.session}.{kind}{self.window}"
        return "msg_" + hashlib.blake2b(place.encode(), digest_size=16).hexdigest()
