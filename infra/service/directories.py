"""The directories that settings name: created or checked before anything else starts."""

import os
import stat
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import make_url

from infra.errors import WrongSetting, unusable
from infra.service.voices import local_directory
from infra.settings import Settings
from infra.urls import Embedded
from topics.errors import ServiceError

log = structlog.get_logger("infra.service")

#: Umask of a process that keeps data: other users get no rights to new files.
UMASK: Final = 0o077
#: The service's parts of the data directory; everything else in it is not ours.
OWN: Final = ("log", "tables", "tables-kafka", "uploads", "engines", "voices", "models")

#: The most voice files that a start checks.
MOST_VOICES: Final = 1000


def prepare(settings: Settings) -> None:
    """Make the directories of the data and the log, and check that all directories in the settings are writable.

    The directory of a database elsewhere is never made: a wrong path would be a new, empty database. The directory of
    voices is made with the first voice, private to its owner.

    Raises:
        WrongSetting: a directory is missing, is not a directory, or cannot be written; or a database is not a file.
        ServiceError: this user may not use something in it, or a file is in place of a directory.
    """
    _make("data", settings.own)
    if isinstance(settings.log, Embedded):
        _make("broker", settings.log.directory)
    database = database_file(settings)
    if settings.database_url is not None and database is not None:
        _check("database_url", database.parent)
        if database.exists() and not database.is_file():
            raise WrongSetting("database_url", f"{database} is not a file")
    if settings.voices_url is not None and (voices := local_directory(settings.voices_url)):
        _check("voices_url", next(one for one in (voices, *voices.parents) if one.exists()))
    for path in _made(settings):
        _check_rights(path)


def narrow(settings: Settings) -> None:
    """Remove rights of other users that an earlier version, or another umask, left open.

    This only changes what the service made, never a directory that a setting names, because others may use it.
    """
    for path in _made(settings):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & UMASK and not path.is_symlink():
                path.chmod(mode & ~UMASK)
                log.info("data.narrowed", path=str(path), mode=f"{mode:o}")
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("data.open_to_others", path=str(path), error=error.strerror)


def _made(settings: Settings) -> Iterator[Path]:
    yield from (settings.own / name for name in OWN)
    if isinstance(settings.log, Embedded):
        yield from (settings.log.directory / name for name in ("log", "lock"))
    if database := database_file(settings):
        yield from (database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm"))


def _check_rights(path: Path) -> None:
    """Check that this user may use a path that the service made, and what is in it.

    Raises:
        ServiceError: the user may not.
    """
    if path.name in OWN and path.exists() and not path.is_dir():
        raise ServiceError(f"{path} is not a directory: move it away")
    # There may be very many voices. Files of another user, for example from a copy by root, are among the first.
    within = islice(path.rglob("*"), MOST_VOICES if path.name == "voices" else None)
    for one in (path, *within) if path.is_dir() else (path,):
        rights = (os.R_OK if path.name == "models" else os.R_OK | os.W_OK) | (one.is_dir() and os.X_OK)
        if not os.access(one, rights) and one.exists():
            raise ServiceError(f"{one} is not for this user: the service must own what is in its data directory")


def database_file(settings: Settings) -> Path | None:
    """Return the file of the database, or None for PostgreSQL."""
    url = make_url(settings.database)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def _make(field: str, directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        pass  # A file; `_check` reports it.
    except OSError as error:
        raise unusable(field, directory, "cannot be made", error) from error
    _check(field, directory)


def _check(field: str, directory: Path) -> None:
    if not directory.is_dir():
        raise WrongSetting(field, f"{directory} is not a directory")
    try:
        # Tried, because permissions are not the only possible obstacle.
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise unusable(field, directory, "cannot be written", error) from error
