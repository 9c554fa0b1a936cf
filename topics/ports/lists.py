"""Lists of a project's sessions or jobs, newest first, merged from their owners."""

import msgspec

from topics.keys import LATEST_MS


class ListQuery(msgspec.Struct, frozen=True):
    """A query for entries of a project's list."""

    project: str
    #: Empty for all states.
    states: tuple[str, ...] = ()
    #: Range of log times in milliseconds, the end excluded.
    since_ms: int = 0
    until_ms: int = LATEST_MS
    #: Start after the entry with this (time, id).
    after: tuple[int, str] | None = None
    count: int = 50


class Coverage(msgspec.Struct, frozen=True):
    """The partitions that this node can list, and the owners of the others."""

    here: frozenset[int]
    partitions: int
    #: URLs of the owners of other partitions, by the last assignment.
    elsewhere: frozenset[str]
