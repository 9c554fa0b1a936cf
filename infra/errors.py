"""A setting that is well formed but cannot work on this machine.

EarshotError
└── WrongSetting      a setting that cannot work here; the command ends with exit status 2
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from topics.errors import EarshotError, EngineError, ServiceError

PREFIX: Final = "EARSHOT_"


def variable(field: str) -> str:
    return PREFIX + field.upper()


class WrongSetting(EarshotError):
    """A setting cannot work on this machine; the message begins with its variable."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(f"{variable(field)}: {fault}")


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
