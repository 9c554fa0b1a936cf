"""Failures of the embedded log."""

from typing import Final

from topics.errors import ServiceError

#: Remedies for a data directory that has lost something, as the end of a sentence.
REMEDIES: Final = (
    "`earshot restore BACKUP --set-aside` puts a backup in place, `earshot salvage` keeps what can be read, "
    "`earshot set-aside` starts anew"
)


class LogError(ServiceError):
    """The log cannot be opened, read or written; the message says what to do."""


class LogLocked(LogError):
    """Another process uses the data directory."""

    #: Its id; 0 if unknown.
    holder = 0


class LogDamaged(LogError):
    """Part of the log is missing or unreadable."""
