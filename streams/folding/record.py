"""One record as a log delivers it."""

from __future__ import annotations

from typing import Protocol

from topics.errors import RecordError
from topics.keys import is_id


class LogRecord(Protocol):
    """One record as a log delivers it."""

    @property
    def offset(self) -> int:
        """Offset in the partition."""

    @property
    def timestamp(self) -> int:
        """Log time in milliseconds."""

    @property
    def key(self) -> bytes | None:
        """The id of the session or job in ASCII."""

    @property
    def value(self) -> bytes | None:
        """The encoded record."""


def id_of(record: LogRecord) -> str:
    """Return the id of the session or job that is the record's key.

    Raises:
        RecordError: the key is no id.
    """
    key = (record.key or b"").decode("ascii", "replace")
    if not is_id(key):
        raise RecordError("the record's key is not an id")
    return key
