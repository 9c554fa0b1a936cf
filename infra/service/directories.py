"""The directories that settings name: made where that is meant, refused before anything else starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sqlalchemy import make_url

from infra.errors import WrongSetting
from infra.service.voices import local_directory
from infra.settings import Settings
from infra.urls import Embedded


def prepare(settings: Settings) -> None:
    """Make the data directory and that of the log, and look whether what settings name can be written.

    The directory of a database elsewhere is never made: a wrong path would be a new, empty database. That of voices
    is made with the first one, for the eyes of its owner only.

    Raises:
        WrongSetting: a directory is none, is not there, or cannot be written.
    """
    _make("data", settings.data)
    if isinstance(settings.log, Embedded):
        _make("broker", settings.log.directory)
    database = make_url(settings.database)
    if settings.database_url is not None and database.get_backend_name() == "sqlite":
        _check("database_url", Path(database.database or "").parent)
    if settings.voices_url is not None and (voices := local_directory(settings.voices_url)):
        _check("voices_url", next(one for one in (voices, *voices.parents) if one.exists()))


def _make(field: str, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        pass  # A file, as the check says.
    except OSError as error:
        raise WrongSetting(field, f"{directory} cannot be made: {error.strerror}") from error
    _check(field, directory)


def _check(field: str, directory: Path) -> None:
    if not directory.is_dir():
        raise WrongSetting(field, f"{directory} is not a directory")
    try:
        # Tried, not looked up: permissions are not all that may be in the way.
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise WrongSetting(field, f"{directory} cannot be written: {error.strerror}") from error
