"""Failures of settings that only the machine can judge.

EarshotError
└── WrongSetting      a setting that cannot work here; the command ends with exit status 2
"""

from __future__ import annotations

from typing import Final

from topics.errors import EarshotError

PREFIX: Final = "EARSHOT_"


def variable(field: str) -> str:
    """Return the environment variable of a field of the settings."""
    return PREFIX + field.upper()


class WrongSetting(EarshotError):
    """A setting that cannot work on this machine; the message begins with its variable."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(f"{variable(field)}: {fault}")
