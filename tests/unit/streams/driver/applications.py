"""Applications on the embedded log in a temporary directory, without a node."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from streams.driver import application
from streams.embedded.log import EmbeddedLog
from topics import catalog

PARTITIONS = 2
DAY_MS = 24 * 3600 * 1000
GROUP = catalog.APP


def often() -> AbstractContextManager[object]:
    """Let applications that are made inside commit every 50 ms, so that tests need not wait."""
    return mock.patch.object(application, "COMMIT_SECONDS", 0.05)


def options(directory: Path) -> application.ApplicationOptions:
    """Return the options of an application on the embedded log."""
    return application.ApplicationOptions(
        broker="embedded://",
        directory=directory,
        partitions=PARTITIONS,
        record_limit=2**20,
        queue_bytes=2**20,
        instance="test",
        url="http://127.0.0.1:8000",
    )


def open_log(directory: Path, clock: Callable[[], float] = time.time) -> EmbeddedLog:
    """Open a log with the topics of the catalogue."""
    log = EmbeddedLog.open(directory / "log", sync=False, clock=clock)
    for topic in catalog.topics(DAY_MS):
        log.declare(topic.name, PARTITIONS, compact=topic.compact, retention_ms=topic.retention_ms)
    return log


@asynccontextmanager
async def started(app: Any, log: EmbeddedLog) -> AsyncIterator[None]:
    """Start an application on a log; both are stopped whatever happens."""
    try:
        await app.start()
        yield
    finally:
        await app.stop()
        await log.close()
