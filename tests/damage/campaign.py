"""Damages one file of a stopped or killed data directory, and classifies the outcome of the next start."""

import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Final
from unittest import mock

import msgspec

from infra.db import intact
from streams.embedded import log_store as store
from tests.damage.files import cut, emptied
from tests.damage.story import ENDS, READY_SECONDS, Place, Story
from tests.unit.streams.node.nodes import log_of
from tests.waiting import until
from topics.errors import EarshotError

KINDS: Final = ("removed", "emptied", "cut", "flipped")
#: Files without content: locks, and RocksDB's information log.
EMPTY_FILES: Final = ("lock", "LOCK", "LOG", "earshot.db-shm")
SILENT: Final = "ready although something is missing"
NEEDLESS: Final = "refused although only tables were damaged"
STUCK: Final = "neither ready nor refused"
UNCLEAR: Final = "refused without the name of the file in one line"
READY, REFUSED, UNSEEN = "ready", "refused", "left out: SQLite does not see it"
FINE: Final = {READY, REFUSED, UNSEEN}


def damage(file: Path, kind: str, chance: random.Random) -> None:
    if kind == "removed":
        file.unlink()
    elif kind == "emptied":
        emptied(file)
    elif kind == "cut":
        cut(file, chance.randint(1, file.stat().st_size))
    else:
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)


async def start(directory: Path, story: Story, *, large: bool = False) -> str:
    """Start on a directory, and return the outcome; `large` means that a start does not read all of the log."""
    with mock.patch.object(store, "SMALL", -1) if large else nullcontext():
        return await _start(directory, story)


async def _start(directory: Path, story: Story) -> str:
    place = Place(directory)
    try:
        intact.check(place.database, place.marks.change, (directory / "log" / "log").exists())
        async with place.starting() as node:
            try:
                await until(lambda: node.served.is_set() or place.failures, READY_SECONDS)
            except TimeoutError:
                return STUCK
            log = log_of(node)
            await until(lambda: log.damage or not log.store.is_unread, READY_SECONDS)
            if place.failures or log.damage or node.ready() is not None:
                return REFUSED
            return READY if await story.is_there(place, node) else SILENT
    except EarshotError as error:
        # An operator needs one line that names the file.
        return REFUSED if str(directory) in str(error) and "\n" not in str(error) else f"{UNCLEAR}: {error}"
    finally:
        place.marks.close()


def is_unseen(database: Path) -> bool:
    """Return whether SQLite considers a damaged database sound."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def write(directory: Path, end: str, *more: str) -> Story:
    """Write a story in a separate process, and return it; see `tests.damage.story`."""
    command = (sys.executable, "-m", "tests.damage.story", str(directory), end, *more)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return msgspec.json.decode(directory.with_suffix(".json").read_bytes(), type=Story)


async def campaign(scratch: Path, cases: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield each case with its outcome."""
    chance = random.Random(seed)
    stories = {end: write(scratch / end, end) for end in ENDS}
    choices = [
        (end, file.relative_to(scratch / end), kind)
        for end in ENDS
        for file in sorted((scratch / end).rglob("*"))
        if file.is_file() and file.stat().st_size and file.name not in EMPTY_FILES
        for kind in KINDS
    ]
    # The first is always refused, so that a few cases hold both outcomes.
    certain = next(case for case in choices if case[1] == Path("log/log/CURRENT") and case[2] == "removed")
    found = []
    for end, file, kind in (certain, *(chance.choice(choices) for _ in range(cases - 1))):
        copy = Path(shutil.copytree(scratch / end, scratch / "case"))
        damage(copy / file, kind, chance)
        large = chance.random() < 0.5
        outcome = await start(copy, stories[end], large=large)
        if file.parts[0] == "partitions" and outcome == REFUSED:
            outcome = NEEDLESS
        if outcome == SILENT and file.name == "earshot.db" and kind == "flipped" and is_unseen(copy / file):
            outcome = UNSEEN
        found.append((f"{end}, {file} {kind}{', as a large log' if large else ''}", outcome))
        shutil.rmtree(copy)
    return iter(found)


def count(outcomes: Iterator[tuple[str, str]]) -> Counter[str]:
    """Return the count of each outcome, and print the forbidden cases."""
    counts: Counter[str] = Counter()
    for case, outcome in outcomes:
        counts[outcome] += 1
        if outcome not in FINE:
            print(f"{case}: {outcome}")
    return counts
