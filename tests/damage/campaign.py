"""A data directory as a stop or a kill leaves it, damage to one of its files, and what a start makes of that."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import text

from infra.db import intact
from infra.db.database import Database
from streams.embedded.log import EmbeddedLog
from streams.embedded.marks import FILE, Marks
from streams.node.node import Node
from tests.unit.streams.node.nodes import DAY_MS, PARTITIONS, Home, is_finished, scores, send
from tests.unit.streams.sessions.studio import STREAM, sound, truth
from tests.waiting import until
from topics import catalog
from topics.errors import EarshotError
from topics.keys import new_id
from topics.sessions.records import Chunk, Deleted, Sealed

KINDS: Final = ("removed", "emptied", "cut", "flipped")
SESSIONS: Final = 4
SECONDS: Final = 2
#: Rows of the database.
ROWS: Final = 20
#: Files that hold nothing: locks, and what RocksDB says of itself.
EMPTY_FILES: Final = ("lock", "LOCK", "LOG", "earshot.db-shm")
READY_SECONDS: Final = 30
SILENT: Final = "ready although something is missing"
NEEDLESS: Final = "refused although only tables were damaged"
READY, REFUSED, UNSEEN = "ready", "refused", "left out: SQLite does not see it"


class Place(Home):
    """A data directory whose log and database note how far they are, as those of the service do."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.marks = Marks(self.tables / FILE)

    @property
    def database(self) -> Path:
        """The file of the database."""
        return self.directory / "earshot.db"

    def log(self) -> EmbeddedLog:
        """Open the log without a node."""
        self.tables.mkdir(parents=True, exist_ok=True)
        log = EmbeddedLog.open(self.directory / "log", clock=self.clock, marks=self.marks)
        for topic in catalog.topics(DAY_MS):
            log.declare(topic.name, PARTITIONS, compact=topic.compact, retention_ms=topic.retention_ms)
        return log


class Story(NamedTuple):
    """Sessions that ended, and one that was deleted."""

    ended: list[str]
    deleted: str

    async def is_there(self, place: Place, node: Node) -> bool:
        """Return whether all is there that was acknowledged, and nothing that was deleted."""
        if any(node.sessions.view(session) is None for session in self.ended):
            return False
        try:
            for session in self.ended:
                await until(partial(is_finished, node, session), READY_SECONDS)
        except TimeoutError:
            return False
        whole = {scores(node, session) for session in self.ended} == {truth(sound(SECONDS))}
        with closing(sqlite3.connect(place.database)) as connection:
            (rows,) = connection.execute("SELECT count(*) FROM organizations").fetchone()
        return whole and rows == ROWS and node.sessions.view(self.deleted) is None


async def write(directory: Path) -> tuple[Story, dict[str, Path]]:
    """Write a story, and return it with the directories that a kill and a stop left."""
    place = Place(directory / "stopped")
    database = Database(f"sqlite+aiosqlite:///{place.database}")
    place.directory.mkdir(parents=True)
    await database.migrate()
    story = Story([new_id() for _ in range(SESSIONS)], new_id())
    async with place.serving() as node:
        database.note_change = place.marks.note_change
        for number in range(ROWS):
            async with database.writing() as connection:
                row = {"id": str(number), "name": f"{number}:{'n' * 500}", "at": 0}
                await connection.execute(text("INSERT INTO organizations VALUES (:id, :name, :at)"), row)
        for session in (*story.ended, story.deleted):
            await send(node, session, STREAM, Chunk("c", 0, sound(SECONDS)), Sealed("s"))
            await until(partial(is_finished, node, session), READY_SECONDS)
        await send(node, story.deleted, Deleted("d"))
        killed = Path(shutil.copytree(place.directory, directory / "killed"))
    await database.close()
    place.marks.close()
    return story, {"kill -9": killed, "SIGTERM": place.directory}


def damage(file: Path, kind: str, chance: random.Random) -> None:
    """Damage a file."""
    data = bytearray(file.read_bytes())
    if kind == "removed":
        file.unlink()
        return
    if kind == "emptied":
        data.clear()
    elif kind == "cut":
        del data[chance.randrange(len(data)) :]
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


async def start(directory: Path, story: Story) -> str:
    """Start on a directory, and return what came of it."""
    place = Place(directory)
    try:
        intact.check(place.database, place.marks.change, (directory / "log" / "log").exists())
        async with place.starting() as node:
            try:
                await until(lambda: node.served.is_set() or place.failures, READY_SECONDS)
            except TimeoutError:
                return REFUSED
            if place.failures or node.ready() is not None:
                return REFUSED
            return READY if await story.is_there(place, node) else SILENT
    except EarshotError:
        return REFUSED
    finally:
        place.marks.close()


def is_unseen(database: Path) -> bool:
    """Return whether SQLite takes a damaged database for a sound one."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


async def campaign(scratch: Path, cases: int, seed: int) -> Iterator[tuple[str, str]]:
    """Return each case with what came of it."""
    chance = random.Random(seed)
    story, ends = await write(scratch)
    choices = [
        (end, file.relative_to(directory), kind)
        for end, directory in ends.items()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.stat().st_size and file.name not in EMPTY_FILES
        for kind in KINDS
    ]
    found = []
    for _ in range(cases):
        end, file, kind = chance.choice(choices)
        copy = Path(shutil.copytree(ends[end], scratch / "case"))
        damage(copy / file, kind, chance)
        outcome = await start(copy, story)
        if file.parts[0] == "partitions" and outcome == REFUSED:
            outcome = NEEDLESS
        if outcome == SILENT and file.name == "earshot.db" and kind == "flipped" and is_unseen(copy / file):
            outcome = UNSEEN
        found.append((f"{end}, {file} {kind}", outcome))
        shutil.rmtree(copy)
    return iter(found)


def count(outcomes: Iterator[tuple[str, str]]) -> Counter[str]:
    """Return how often each outcome came, and print the cases that must not be."""
    counts: Counter[str] = Counter()
    for case, outcome in outcomes:
        counts[outcome] += 1
        if outcome in (SILENT, NEEDLESS):
            print(f"{case}: {outcome}")
    return counts
