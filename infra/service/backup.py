"""Makes and restores backups: the service's data on this machine, as of one moment.

The log is copied before the database. So the database copy contains everything that the log copy refers to, such as
lines of the ledger, and a little more. Both copies pass the checks of a start before the backup gets its name.
"""

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from infra import urls
from infra.db import intact
from infra.db.secret import LOG as LOG_NAME
from infra.disk import sync, sync_all
from infra.service import data_directory
from infra.service.data_directory import DATABASE, LOG, MODELS, SCRATCH, VOICES, log_part
from infra.service.directories import database_file
from infra.service.lanes import Placement, lanes_of
from infra.settings import PLACEMENT, Settings
from infra.urls import Embedded
from streams.embedded import log_store as store
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from streams.embedded.pinned import pinned
from topics.errors import ServiceError

#: Written last: a directory without it is not a backup.
CONTENTS: Final = "backup.json"
FORMAT: Final = 1
INCOMPLETE: Final = ".incomplete"


class Contents(msgspec.Struct, frozen=True):
    """The contents file of a backup, which `restore` checks first."""

    format: int
    #: When the backup began, in milliseconds since 1970.
    begun_at: int
    #: The service's settings: "embedded" or "kafka", and "sqlite" or "postgresql".
    broker: str
    database: str
    #: The parts (`infra.service.data_directory.places`) that existed.
    holds: tuple[str, ...]
    #: Bytes of each file, by its path in the backup.
    files: dict[str, int]


def make(settings: Settings, target: Path) -> Contents:
    """Copy the service's data on this machine into a new directory, whether the service runs or not.

    Raises:
        ServiceError: there is nothing to copy or it is damaged, or the target is in use, inside the data, or full. Then
            there is no backup.
    """
    begun_at = int(time.time() * 1000)
    places = data_directory.places(settings)
    there = {name for name, path in places.items() if path.exists()}
    # With Kafka and PostgreSQL there are only models and voices.
    if not there or not (there - {PLACEMENT, MODELS, VOICES} or places.keys() <= {MODELS, VOICES}):
        raise ServiceError(f"there is nothing to back up in {settings.data}: set EARSHOT_DATA as for the service")
    _check_target(target, places)
    partial = target.with_name(f"{target.name}{INCOMPLETE}")
    try:
        partial.mkdir(mode=0o700)
    except FileExistsError:
        raise ServiceError(f"{partial} exists: remove it, unless a backup is still running") from None
    except OSError as error:
        raise ServiceError(f"{partial} cannot be made: {error.strerror}") from error
    try:
        _copy_all(settings, places, partial)
        files = {str(file.relative_to(partial)): file.stat().st_size for file in _files(partial)}
        holds = tuple(name for name in places if (partial / name).exists())
        contents = Contents(FORMAT, begun_at, *_kinds(settings), holds, files)
        (partial / CONTENTS).write_bytes(msgspec.json.encode(contents))
        sync_all(partial)
        partial.rename(target)
        sync(target.parent)
    except OSError as error:
        raise ServiceError(f"the backup cannot be written: {_reason(error, partial)}") from error
    finally:
        if partial.exists():
            shutil.rmtree(partial, ignore_errors=True)
    return contents


def _reason(error: OSError, place: Path) -> str:
    """Return what failed with which files; `place` is where, if the error names none."""
    files = " to ".join(str(file) for file in (error.filename, error.filename2) if file is not None)
    return f"{error.strerror} ({files or place})"


def _check_target(target: Path, places: dict[str, Path]) -> None:
    if not target.parent.is_dir():
        raise ServiceError(f"{target.parent} is not a directory")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ServiceError(f"{target} is there already: a backup needs a new directory")
    for path in places.values():
        if target.resolve().is_relative_to(path.resolve()):
            raise ServiceError(f"{target} is inside of what is backed up")


def _kinds(settings: Settings) -> tuple[str, str]:
    return settings.log.kind, "sqlite" if database_file(settings) else "postgresql"


def elsewhere(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each thing that the backup lacks because it is not on this machine."""
    broker, database = _kinds(settings)
    if broker == "kafka":
        yield "The log is not in it: Kafka keeps its own."
    if database == "postgresql":
        yield "The database is not in it: save PostgreSQL with pg_dump --format=custom."
    if VOICES not in data_directory.places(settings):
        yield f"Recordings of voices are not in it: they are at {urls.redact_url(settings.voices_url or '')}."


def _copy_all(settings: Settings, places: dict[str, Path], into: Path) -> None:
    lanes = lanes_of(settings) if isinstance(settings.log, Embedded) else []
    # The copies must have everything that was durable at this point.
    marks = {log_part(one.lane): Marks(data_directory.tables(one) / MARKS) for one in lanes}
    change = max((one.change for one in marks.values()), default=0)
    logs, database = {name: places[name] for name in marks}, places.get(DATABASE)
    begun = any(log.exists() for log in logs.values())
    for name, log in logs.items():
        if not (log / "CURRENT").exists():
            store.check(log, marks[name].group)
            continue
        with pinned(log.parent) as found:
            _copy_new(found, into / name)
        (into / name / "lock").unlink()
    for name in PLACEMENT, MODELS, VOICES:
        if name in places and places[name].exists():
            _copy_new(places[name], into / name)
    if database is not None:
        intact.check(database, change, begun)
        if database.exists():
            copy_database(database, into / DATABASE)
            intact.check(into / DATABASE, change, begun)
    for name, log in logs.items():
        check_log(into, name, marks[name].group, log)
    if VOICES in places and places[VOICES].exists():  # Adds voices that came while the database was copied.
        _copy_new(places[VOICES], into / VOICES)


def check_log(copies: Path, name: str, group: int, shown: Path) -> None:
    """Read the whole copy of a log, the part `name`, and check that it belongs to the database beside it.

    Raises:
        LogError: the log is damaged, incomplete, or another one; the message calls it `shown`.
    """
    database, copy = copies / DATABASE, copies / name
    store.check(copy, group, log_name(database), whole=True, shown=shown)
    for kind in "LOG*", "LOCK":
        for file in copy.glob(kind):
            file.unlink()  # This check created them.


def copy_database(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a SQLite database, which may be in use.

    Raises:
        ServiceError: it cannot be read or written.
    """
    try:
        with closing(intact.read_only(source)) as there, closing(sqlite3.connect(target)) as here:
            there.backup(here)
            here.execute("PRAGMA journal_mode = DELETE")  # One file; a start switches it to a write-ahead log again.
    except sqlite3.Error as error:
        raise ServiceError(f"the database {source} cannot be copied: {error}") from error
    target.chmod(0o600)


def log_name(database: Path) -> bytes | None:
    """Return the name of the log that belongs to a SQLite database, or None if there was no log yet."""
    with (
        suppress(sqlite3.Error),  # The database is missing or has no tables.
        closing(intact.read_only(database)) as connection,
    ):
        row = connection.execute("SELECT value FROM secrets WHERE name = ?", (LOG_NAME,)).fetchone()
        return None if row is None else bytes(row[0])
    return None


def restore(settings: Settings, source: Path, aside: bool) -> tuple[Contents, list[Path]]:
    """Restore a backup as the service's data; return its contents and the directories that hold the previous data.

    With `aside`, existing data is renamed; otherwise it is an error.

    Raises:
        ServiceError: `source` is not a whole backup, it does not fit the settings, a service runs, or data exists.
            Then nothing was changed.
    """
    contents = _read(source)
    places = data_directory.places(settings, _placement(source))
    was = contents.broker, contents.database
    for setting, before, now in zip(("EARSHOT_BROKER", "EARSHOT_DATABASE_URL"), was, _kinds(settings), strict=True):
        if before != now:
            raise ServiceError(f"the backup is of a service on {before}, and {setting} is {now}: set it as it was")
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with data_directory.stopped(settings):
        present = data_directory.contents(settings)
        if present and not aside:
            raise ServiceError(
                f"{present[0]} is there already: `earshot restore {source} --set-aside` renames what is there"
            )
        staged = _new_directory(settings.data)
        copies = {name: staged / name for name in places if name in contents.holds}
        try:
            for name, copy in copies.items():
                _copy_new(source / name, copy)
            _check_copies(source, staged, [name for name in copies if name.startswith(LOG)])
            sync_all(staged)
            made = data_directory.set_aside(settings, present) if present else []
            for name, copy in copies.items():
                _put(copy, places[name])
        except OSError as error:
            raise ServiceError(f"the backup cannot be restored: {_reason(error, staged)}") from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        for lane in lanes_of(settings):
            data_directory.note_left_out(lane)
    return contents, made


def _read(source: Path) -> Contents:
    """Read the contents of a backup, and check that all files are there.

    Raises:
        ServiceError: it is not a backup, or incomplete.
    """
    try:
        contents = msgspec.json.decode((source / CONTENTS).read_bytes(), type=Contents)
    except (OSError, msgspec.DecodeError):
        raise ServiceError(f"{source} is not a whole backup: it has no {CONTENTS} that can be read") from None
    if contents.format != FORMAT:
        raise ServiceError(f"the backup {source} has format {contents.format}, this version reads format {FORMAT}")
    for name, size in contents.files.items():
        file = source / name
        if not file.is_file() or file.stat().st_size != size:
            raise ServiceError(f"the backup {source} is not whole: {name} is missing, or not of {size} bytes")
    return contents


def _placement(source: Path) -> Placement:
    """Return the placement of a backup's logs."""
    file = source / PLACEMENT
    return msgspec.json.decode(file.read_bytes(), type=Placement) if file.exists() else Placement(0, (frozenset(),))


def _new_directory(data: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=SCRATCH, dir=data))
    except OSError as error:
        raise ServiceError(f"the data directory {data} cannot be written: {error.strerror}") from error


def _check_copies(source: Path, copies: Path, logs: Sequence[str]) -> None:
    database = copies / DATABASE
    try:
        if database.exists():
            intact.check(database, 0, bool(logs))
        for name in logs:
            check_log(copies, name, 0, source / name)
    except ServiceError as error:  # Its remedies are for a running service.
        raise ServiceError(f"the backup {source} is damaged: {str(error).partition(': `')[0]}") from error


def _put(copy: Path, place: Path) -> None:
    with suppress(OSError):  # It is missing, not empty, or a mounted volume.
        place.rmdir()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if place.is_dir():  # A voice store elsewhere, where names are never used twice, or an empty volume.
        _copy_new(copy, place)
        sync_all(place)
    else:
        shutil.move(copy, place)  # A rename, unless a setting puts it on another file system.
        sync_all(place)
    sync(place.parent)


def _copy_new(source: Path, target: Path) -> None:
    """Copy a file or directory, skipping what the target already has and what vanishes meanwhile."""
    if not source.is_dir():
        shutil.copyfile(source, target)
        target.chmod(0o600)
        return
    target.mkdir(mode=0o700, exist_ok=True)
    for one in sorted(source.iterdir()):
        if one.name.startswith("."):
            continue  # A recording that is being written.
        if one.is_dir() or not (target / one.name).exists():
            with suppress(FileNotFoundError):
                _copy_new(one, target / one.name)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())
