"""Reads whole topics of the embedded log while the service is stopped."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from streams.embedded.embedded_backend import EmbeddedBackend
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogError
from streams.log import LogHistory
from topics import catalog


@asynccontextmanager
async def embedded_history(directory: Path) -> AsyncIterator[LogHistory]:
    """Open the log of a directory without changing its contents.

    Raises:
        LogLocked: the service is running.
        LogError: the log is missing or unreadable.
    """
    log = _opened(directory)
    try:
        for topic in catalog.topics(0):
            # A compacted topic may lack records, even before its first compaction has ended.
            if partitions := log.topics().get(topic.name):
                log.declare(topic.name, partitions, compact=topic.compact)
        yield LogHistory(EmbeddedBackend(log, (), 0, time.time), log.topics())
    finally:
        await log.close()


def _opened(directory: Path) -> EmbeddedLog:
    if not directory.is_dir():
        raise LogError(f"there is no log in {directory}")
    return EmbeddedLog.open(directory)
