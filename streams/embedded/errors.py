"""Failures of the embedded log.

ServiceError
└── LogError          the log cannot be opened, read or written; the message says what to do
    └── LogLocked     another process has the data directory
"""

from __future__ import annotations

from topics.errors import ServiceError


class LogError(ServiceError):
    """The log cannot be opened, read or written; the message says what to do."""


class LogLocked(LogError):
    """Another process has the data directory."""
