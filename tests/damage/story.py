"""A data directory in use: acknowledged sessions, jobs and database rows, up to its stop or kill.

`python -m tests.damage.story DIRECTORY END [--done]` writes one in a separate process, and its content to
`DIRECTORY.json`. With `--done` no analysis is pending at the end.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import text

from infra.db.database import Database
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.marks import FILE, Marks
from streams.node.node import Node
from tests.unit.streams.node.nodes import DAY_MS, PARTITIONS, is_finished, scores, send
from tests.unit.streams.node.test_jobs import FOUND, House, is_completed, post, result
from tests.unit.streams.sessions.studio import STREAM, sound, truth
from tests.waiting import until
from topics import catalog
from topics.keys import new_id
from topics.sessions.records import Chunk, Deleted, Sealed

ENDS: Final = ("kill -9", "SIGTERM")
#: Analysed sessions and completed jobs before the end; one more of each is unfinished.
SESSIONS: Final = 4
JOBS: Final = 2
SECONDS: Final = 2
#: Rows of the database.
ROWS: Final = 20
READY_SECONDS: Final = 120


class Place(House):
    """A data directory whose log and database record their progress, as the service's do."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.marks = Marks(self.tables / FILE)

    @property
    def database(self) -> Path:
        return self.directory / "earshot.db"

    def log(self) -> EmbeddedLog:
        """Open the log without a node."""
        self.tables.mkdir(parents=True, exist_ok=True)
        log = EmbeddedLog.open(self.directory / "log", clock=self.clock, marks=self.marks)
        for topic in catalog.topics(DAY_MS):
            log.declare(topic.name, PARTITIONS, compact=topic.compact, retention_ms=topic.retention_ms)
        return log


class Story(msgspec.Struct, frozen=True):
    """Acknowledged sessions and jobs, and a deleted session."""

    sessions: list[str]
    jobs: list[str]
    deleted: str

    async def is_there(self, place: Place, node: Node) -> bool:
        """Return whether everything acknowledged is there, and nothing deleted is."""
        if any(node.sessions.view(session) is None for session in self.sessions):
            return False
        if any(node.jobs.view(job) is None for job in self.jobs):
            return False
        try:
            for session in self.sessions:
                await until(partial(is_finished, node, session), READY_SECONDS)
            for job in self.jobs:
                await until(partial(is_completed, node, job), READY_SECONDS)
        except TimeoutError:
            return False
        whole = {scores(node, session) for session in self.sessions} == {truth(sound(SECONDS))}
        done = all(result(node, job) == FOUND for job in self.jobs)
        with closing(sqlite3.connect(place.database)) as connection:
            (rows,) = connection.execute("SELECT count(*) FROM organizations").fetchone()
        return whole and done and rows == ROWS and node.sessions.view(self.deleted) is None


async def write(directory: Path, end: str, done: bool) -> None:
    place = Place(directory)
    directory.mkdir(parents=True)
    database = Database(f"sqlite+aiosqlite:///{place.database}")
    await database.migrate()
    async with place.serving() as node:
        database.note_change = place.marks.note_change
        for number in range(ROWS):
            async with database.writing() as connection:
                row = {"id": str(number), "name": f"{number}:{'n' * 500}", "at": 0}
                await connection.execute(text("INSERT INTO organizations VALUES (:id, :name, :at)"), row)
        story = Story([new_id() for _ in range(SESSIONS)], [node.jobs.new_id() for _ in range(JOBS)], new_id())
        for session in (*story.sessions, story.deleted):
            await send(node, session, STREAM, Chunk("c", 0, sound(SECONDS)), Sealed("s"))
            await until(partial(is_finished, node, session), READY_SECONDS)
        await send(node, story.deleted, Deleted("d"))
        for job in story.jobs:
            await post(node, job)
            await until(partial(is_completed, node, job), READY_SECONDS)
        if not done:
            place.echo.open.clear()
            story.jobs.append(node.jobs.new_id())
            await post(node, story.jobs[-1])
            story.sessions.append(new_id())
            await send(node, story.sessions[-1], STREAM, Chunk("c", 0, sound(SECONDS)), Sealed("s"))
        await send(node, new_id(), STREAM, Chunk("c", 0, sound(SECONDS)))  # Stays open.
        directory.with_suffix(".json").write_bytes(msgspec.json.encode(story))
        if end == "kill -9":
            os.kill(os.getpid(), signal.SIGKILL)
    await database.close()
    place.marks.close()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], "--done" in sys.argv))
