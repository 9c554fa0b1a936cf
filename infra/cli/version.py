"""`earshot --version`."""

from importlib.metadata import version as version_of
from typing import Annotated

import typer


def _print(wanted: bool) -> None:
    if wanted:
        print(f"earshot {version_of('earshot-server')}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options before the command; each acts by itself."""
