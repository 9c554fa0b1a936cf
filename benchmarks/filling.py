"""Writes sessions with many windows to the log before the service starts.

A shortcut for temporary directories: it appends the rows of made-up windows to the changelog, as the service would. At
startup the service restores its tables from them.
"""

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from benchmarks import audio, processes
from infra import models
from infra.service_settings import EMBEDDED_PARTITIONS
from streams.embedded.embedded_log import EmbeddedLog
from streams.folding.draft import Draft
from streams.folding.head_store import PartitionTable
from streams.log import Ack
from streams.models import manifest
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import new_rows
from streams.tables.partition_rows import NO_ROWS
from topics import keys
from topics.catalog import CHANGELOG, topics
from topics.folding import Arrival
from topics.geometry import SESSIONS
from topics.scores import ZERO
from topics.sessions.analysis_rules import grown
from topics.sessions.records import Cursor, NewWindows, Opened
from topics.sessions.rules import SessionHead

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
    now = int(time.time() * 1000)
    table, head = _Table(), SessionHead("stream", None, now, 0, opened_at=now)
    store = SessionStore(cast(PartitionTable, table))
    for first in range(0, size, RECORD_WINDOWS):
        packed = some[: (size - first) * len(model.tags)]
        new = NewWindows(first, model.model_id, packed, Cursor(), tags=len(model.tags))
        head = grown(head, new, now)
        if not first:
            draft = Draft(store)
            draft.put_request(session, opened, Arrival(0, now))
            draft.put_head(session, head)
            draft.keep()
            draft.apply()
        table.write(new_rows(store, session, head, new))
    partition = keys.partition_of(session, EMBEDDED_PARTITIONS)
    log.append_rows(CHANGELOG, partition, table.rows, 0)


class _Table:
    """The rows of one session."""

    epoch = number = 0

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def write(self, changes: Mapping[bytes, bytes | None], logged: Mapping[bytes, bytes] = NO_ROWS) -> None:
        self.rows.update(changes)


def scores(tags: int, windows: int) -> bytes:
    """Return packed scores in which every window has a few tags."""
    seed = random.Random(1)
    packed = bytearray(seed.choices(range(ZERO), k=tags * windows))
    for window in range(windows):
        for tag in seed.sample(range(tags), FOUND):
            packed[window * tags + tag] = seed.randrange(ZERO, 256)
    return bytes(packed)
