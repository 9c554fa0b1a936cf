"""What came of an attempt to deliver an alarm."""

import msgspec


class Outcome(msgspec.Struct, frozen=True):
    """The verdict of a destination on one attempt."""

    #: Why it failed, for the owner of the project; None if it was delivered. Nothing in it is secret.
    error: str | None = None
    #: HTTP status of the answer.
    status: int | None = None
    #: The destination cannot take any alarm now; otherwise it refused this one.
    away: bool = False
    #: Seconds for which the destination asked to wait.
    wait_s: float = 0.0
    #: The destination wants no alarms any more.
    gone: bool = False
