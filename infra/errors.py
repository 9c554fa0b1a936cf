"""What cannot work on this machine.

EarshotError
└── Unfit             the machine does not allow what the service needs; the command ends with exit status 2
    └── WrongSetting  a setting that is well formed, but cannot work here
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from topics.errors import EarshotError, EngineError, ServiceError

PREFIX: Final = "EARSHOT_"


def variable(field: str) -> str:
    return PREFIX + field.upper()


class Unfit(EarshotError):
    """This machine does not allow what the service needs; the message names the limit, and what to do."""


class WrongSetting(Unfit):
    """A setting cannot work on this machine; the message begins with its variable."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(f"{variable(field)}: {fault}")


def unusable(field: str, directory: Path, fault: str, error: OSError) -> WrongSetting:
    """Return the error of a directory that a setting names; it names the owner if that is another user."""
    owner = next(one for one in (directory, *directory.parents) if one.exists()).stat().st_uid
    other = isinstance(error, PermissionError) and owner != os.geteuid()
    whose = f" (its owner is user {owner}, this is user {os.geteuid()})" if other else ""
    return WrongSetting(field, f"{directory} {fault}: {error.strerror}{whose}")


def named(field: str, error: ServiceError) -> ServiceError:
    """Return the error with the name of the setting that caused it in front; it may be temporary."""
    named = ServiceError(f"{variable(field)}: {error}")
    for note in getattr(error, "__notes__", ()):
        named.add_note(note)
    return named


@contextmanager
def naming(field: str, value: str | None) -> Iterator[None]:
    """Blame a setting for failures of the body.

    Raises:
        WrongSetting: the body failed, and the setting is set, so it is at fault.
    """
    try:
        yield
    except (EngineError, ServiceError) as error:
        if value is None:
            raise
        raise WrongSetting(field, str(error)) from error
