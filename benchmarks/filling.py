"""Writes sessions with many windows to the log before the service starts.

A shortcut for temporary directories: it appends records of an opening and of made-up results, as the service would. At
startup the service folds them into its tables like any others.
"""

import asyncio
import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks import audio, processes
from infra import models
from infra.service_settings import EMBEDDED_PARTITIONS
from streams.embedded.embedded_log import EmbeddedLog
from streams.log import Ack
from streams.models import manifest
from topics import keys, record_codec
from topics.catalog import COMMANDS, RESULTS, topics
from topics.geometry import SESSIONS
from topics.scores import ZERO
from topics.sessions.records import Cursor, Opened, Scored

RETENTION_MS: Final = 24 * 3600 * 1000
RECORD_WINDOWS: Final = 1024
#: Tags above their operating points in each window.
FOUND: Final = 3


def fill(data: Path, sizes: Iterable[int]) -> list[str]:
    """Write one session per number of windows; return their ids."""
    make_project(data)  # A log without a database is refused.
    return asyncio.run(_fill(data, list(sizes)))


def make_project(data: Path) -> str:
    """Start and stop a service on an empty directory; return the id of its first project."""
    with processes.service(data):
        pass
    with closing(sqlite3.connect(data / "earshot.db")) as database:
        [(project,)] = database.execute("select id from projects")
    return str(project)


def opened_log(data: Path) -> EmbeddedLog:
    log = EmbeddedLog.open(data / "log", sync=False)
    for topic in topics(RETENTION_MS):
        log.declare(topic.name, EMBEDDED_PARTITIONS, compact=topic.compact, retention_ms=topic.retention_ms)
    return log


def append(log: EmbeddedLog, topic: str, id: str, record: bytes) -> asyncio.Future[Ack]:
    """Append a record of a session or job."""
    return log.append(topic, keys.partition_of(id, EMBEDDED_PARTITIONS), id.encode("ascii"), record)


async def _fill(data: Path, sizes: list[int]) -> list[str]:
    log = opened_log(data)
    sessions = [keys.new_id() for _ in sizes]
    for session, size in zip(sessions, sizes, strict=True):
        await _session(log, session, size)
    await log.close()
    return sessions


async def _session(log: EmbeddedLog, session: str, size: int) -> None:
    model = manifest.read(models.directory("yamnet"))
    some = scores(len(model.tags), RECORD_WINDOWS)
    opened = Opened("fill", "stream", audio.CONTENT_TYPE, "fill", SESSIONS.window_ms, SESSIONS.hop_ms)
    await append(log, COMMANDS, session, record_codec.encode(opened))
    for first in range(0, size, RECORD_WINDOWS):
        packed = some[: (size - first) * len(model.tags)]
        result = Scored(first, model.model_id, packed, Cursor(), tags=len(model.tags))
        await append(log, RESULTS, session, record_codec.encode(result))


def scores(tags: int, windows: int) -> bytes:
    """Return packed scores in which every window has a few tags."""
    seed = random.Random(1)
    packed = bytearray(seed.choices(range(ZERO), k=tags * windows))
    for window in range(windows):
        for tag in seed.sample(range(tags), FOUND):
            packed[window * tags + tag] = seed.randrange(ZERO, 256)
    return bytes(packed)
