"""Lists of a project's sessions or jobs, newest first, merged from the nodes that own them."""

import msgspec

from topics.keys import LATEST_MS


class ListQuery(msgspec.Struct, frozen=True):
    """Which entries of a project's list are asked for."""

    project: str
    #: Empty: all that a list can have.
    states: tuple[str, ...] = ()
    #: Log time, milliseconds: from this one on, and before that one.
    since_ms: int = 0
    until_ms: int = LATEST_MS
    #: (time, id) of the entry before the first one.
    after: tuple[int, str] | None = None
    count: int = 50


class Coverage(msgspec.Struct, frozen=True):
    """Which partitions this node can list, and who has the others."""

    here: frozenset[int]
    partitions: int
    #: URLs of the nodes that own the others, as of the last assignment.
    elsewhere: frozenset[str]
