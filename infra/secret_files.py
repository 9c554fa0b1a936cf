"""Secrets by file: reads the value of `EARSHOT_X` from the file that `EARSHOT_X_FILE` names.

Docker and systemd pass secrets as files, which no process list and no `docker inspect` shows.
"""

import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from infra.errors import WrongSetting, variable

SUFFIX: Final = "_file"
#: Longer than any key or URL, so that reading an endless device stops.
MOST_BYTES: Final = 64 * 1024


def secret(field: str, environment: Mapping[str, str]) -> str | None:
    """Return a field's secret from its variable or from the file of `EARSHOT_..._FILE`; None if neither is set.

    An empty variable counts as not set.

    Raises:
        WrongSetting: both are set, or the file cannot be read, is empty, or has more than one line.
    """
    value, path = environment.get(variable(field)) or None, environment.get(variable(field + SUFFIX))
    if not path:
        return value
    if value is not None:
        raise WrongSetting(field, f"is set, and so is {variable(field + SUFFIX)}; set one of them")
    return read_secret(field + SUFFIX, Path(path))


def read_secret(field: str, path: Path) -> str:
    """Return the only line of a file, without its end.

    Raises:
        WrongSetting: the file, which `field` names, cannot be read, is empty, or has more than one line.
    """
    try:
        with path.open("rb") as file:
            return secret_of(field, str(path), file)
    except (OSError, ValueError) as error:
        raise WrongSetting(field, f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def secret_of(field: str, name: str, file: BinaryIO) -> str:
    """Return the only line of an open file, without its end; `name` is the file's name.

    Raises:
        WrongSetting: it is empty, has more than one line, or is not UTF-8.
        OSError: it cannot be read.
    """
    content = file.read(MOST_BYTES + 1)
    lines = content.removeprefix(codecs.BOM_UTF8).splitlines()
    if len(content) > MOST_BYTES or len(lines) > 1:
        raise WrongSetting(field, f"{name} must hold one line")
    if not lines or not lines[0].strip():
        raise WrongSetting(field, f"{name} is empty")
    try:
        return lines[0].decode()
    except UnicodeDecodeError:
        raise WrongSetting(field, f"{name} is not UTF-8") from None
