"""The data directory: its layout, its lock, and how it is set aside."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import structlog

from infra.service import lanes
from infra.service.directories import OWN, database_file
from infra.service.lanes import Placement
from infra.service.lives import CRASH, LIVES
from infra.service.voices import local_directory
from infra.settings import LANES, PLACEMENT, Lane, Settings
from infra.urls import Embedded
from streams.embedded.errors import LogLocked
from streams.embedded.lock import DirectoryLock
from streams.tables.database import Databases
from topics.errors import ServiceError

logger = structlog.get_logger("infra.service")

#: The parts of a backup, in the order of a restore. A start refuses a database whose log is missing, so an incomplete
#: restore is never mistaken for a complete one.
DATABASE: Final = "earshot.db"
VOICES: Final = "voices"
MODELS: Final = "models"
LOG: Final = "log"
#: The log of a lane; its number follows.
LANE_LOG: Final = "log-"
#: Suffixes of a SQLite database's files.
SUFFIXES: Final = ("", "-wal", "-shm")
#: A file that a restore or a salvage leaves: the tables are missing on purpose until the next start has rebuilt them.
LEFT_OUT: Final = "tables-left-out"
SET_ASIDE: Final = "set-aside-"
#: Prefix of directories that are renamed once they are complete.
SCRATCH: Final = ".unfinished-"


def places(settings: Settings, placement: Placement | None = None) -> dict[str, Path]:
    """Return the paths of everything on this machine that a backup holds, in the order of a restore.

    The logs are those of a `placement`, by default the one that is stored.
    """
    voices = local_directory(settings.voices_url or str(settings.data / VOICES))
    found = {DATABASE: database_file(settings), VOICES: voices, MODELS: settings.data / MODELS}
    if isinstance(settings.log, Embedded):
        placement = placement or lanes.stored(settings)
        found |= {log_part(one): log(settings.of_lane(one)) for one in placement.lanes()}
        found[PLACEMENT] = settings.placement_file
    return {name: path for name, path in found.items() if path is not None}


def log_part(lane: Lane) -> str:
    """Return the name of a lane's log among `places`."""
    return f"{LANE_LOG}{lane.number}" if lane.generation else LOG


def tables(settings: Settings) -> Path:
    return settings.own / ("tables" if isinstance(settings.log, Embedded) else "tables-kafka")


def log(settings: Settings) -> Path:
    """Return the directory of an embedded log's database."""
    broker = settings.log
    assert isinstance(broker, Embedded)
    return broker.directory / LOG


def note_left_out(settings: Settings) -> None:
    """Note that the tables are missing on purpose, so that the next start does not report it."""
    with suppress(OSError):
        (settings.own / LEFT_OUT).touch()


def lock(settings: Settings) -> DirectoryLock:
    """Lock other processes out of the data directory.

    Raises:
        LogLocked: another process uses it.
        LogError: it cannot be used.
    """
    broker = settings.log
    return DirectoryLock(broker.directory if isinstance(broker, Embedded) else tables(settings))


def holder(settings: Settings) -> int:
    """Return the process that holds the data directory.

    Raises:
        ServiceError: none does.
    """
    try:
        lock(settings).release()
    except LogLocked as error:
        if error.holder:
            return error.holder
        raise
    raise ServiceError(f"no service runs on {settings.data}: set EARSHOT_DATA as for the service")


@contextmanager
def stopped(settings: Settings) -> Iterator[None]:
    """Lock services out of the data directory, and remove what killed commands left unfinished.

    Raises:
        ServiceError: a service runs on it, or it cannot be used.
    """
    try:
        held = lock(settings)
    except LogLocked as error:
        raise ServiceError(f"{error}: stop the service first") from error
    try:
        remove_unfinished(settings)
        yield
    finally:
        held.release()


def remove_unfinished(settings: Settings) -> None:
    """Remove what killed commands left unfinished. The data directory must be locked."""
    for directory in _directories(settings):
        for left in directory.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)


def tidy(settings: Settings) -> None:
    """Remove what killed commands left unfinished, and log what was set aside. The data directory must be locked."""
    remove_unfinished(settings)
    found = [path for directory in _directories(settings) for path in directory.glob(f"{SET_ASIDE}*")]
    if aside := [str(path) for path in sorted(found) + Databases(tables(settings)).aside()]:
        note = "deleted data stays in these: remove them when you no longer need them"
        logger.warning("data.set_aside", paths=aside, note=note)


def _directories(settings: Settings) -> set[Path]:
    """Return the directories beside or in which commands put files: of the data, the log and the database."""
    broker, database = settings.log, database_file(settings)
    found = {settings.data, *([broker.directory] if isinstance(broker, Embedded) else [])}
    return found | ({database.parent} if database is not None else set())


def contents(settings: Settings) -> list[Path]:
    """Return the existing paths that belong to the service; everything else in the data directory does not.

    Voices that a setting keeps elsewhere are not listed: they can stay, because their names are never used twice.
    """
    found = [settings.data / name for name in (*OWN, LIVES, CRASH, LEFT_OUT)]
    if isinstance(settings.log, Embedded):
        # The directory around the log holds the lock and stays.
        found = [path for path in found if path != settings.log.directory] + [settings.log.directory / "log"]
        if settings.log.directory != settings.data:
            found += settings.log.directory.glob(f"{LANES}*")
    found += settings.data.glob(f"{LANES}*")
    if (placement := settings.placement_file) is not None:
        found.append(placement)
    if database := database_file(settings):
        found += [database.with_name(database.name + suffix) for suffix in SUFFIXES]
    return [path for path in found if path.exists() and not _is_empty(path)]


def _is_empty(path: Path) -> bool:
    return path.is_dir() and all(one.name == "lock" for one in path.iterdir())


def set_aside(settings: Settings, paths: list[Path], instead: Mapping[Path, Path] = MappingProxyType({})) -> list[Path]:
    """Rename paths, in order, into a new directory below the data directory, or beside them on another file system.

    Missing paths are skipped; `instead` maps paths to replacements, moved into place at once. Returns the new
    directories.

    Raises:
        ServiceError: a path cannot be renamed; earlier renames are undone.
    """
    stamp = time.strftime(f"{SET_ASIDE}%Y%m%dT%H%M%SZ", time.gmtime())
    made: dict[Path, Path] = {}
    moved: list[tuple[Path, Path]] = []
    try:
        for path in paths:
            if path.exists():
                inside = path.is_relative_to(settings.data) and path.parent.stat().st_dev == settings.data.stat().st_dev
                base = settings.data if inside else path.parent
                if base not in made:
                    made[base] = _new_directory(base / stamp)
                aside = made[base] / path.relative_to(base)
                aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.rename(aside)
                moved.append((path, aside))
            if path in instead:
                shutil.move(instead[path], path)
                moved.append((instead[path], path))
    except OSError as error:
        _undo(moved, made.values())
        raise ServiceError(f"{error.filename} cannot be set aside: {error.strerror}") from error
    return list(made.values())


def _undo(moved: Sequence[tuple[Path, Path]], made: Iterable[Path]) -> None:
    """Move paths back, latest first, and remove the new directories; what cannot be moved back stays in them."""
    for before, after in reversed(moved):
        with suppress(OSError):
            shutil.move(after, before)
    for directory in made:
        for path, _, _ in os.walk(directory, topdown=False):
            with suppress(OSError):
                os.rmdir(path)


def _new_directory(path: Path) -> Path:
    number = 1
    while True:
        fresh = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            fresh.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return fresh
