"""`earshot backup`, `restore`, `salvage` and `set-aside`: commands for the data directory."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import Yes, confirm

if TYPE_CHECKING:
    from infra.settings import Settings


def _settings() -> Settings:
    from infra.service.directories import UMASK
    from infra.settings import load

    os.umask(UMASK)
    # Ends like Ctrl-C, so that unfinished files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return load()


def _show_aside(directories: Iterable[Path]) -> None:
    for directory in directories:
        typer.echo(f"What was there is in {directory}.")


def backup(
    directory: Annotated[Path, typer.Argument(help="Where to put the backup: a new or empty directory.")],
) -> None:
    """Copy the data of a service, running or stopped, into a new directory.

    It holds all that was acknowledged before, and gets its name only after a check like that of a start. It is not
    encrypted.
    """
    from infra.service import backup

    settings = _settings()
    contents = backup.make(settings, directory.absolute())
    size = sum(contents.files.values()) / 1e6
    typer.echo(f"{directory} holds {', '.join(contents.holds)} of {settings.data}: {size:.1f} MB.")
    for sentence in backup.elsewhere(settings):
        typer.echo(sentence)


def restore(
    directory: Annotated[Path, typer.Argument(help="A backup by `earshot backup`.")],
    aside: Annotated[
        bool, typer.Option("--set-aside", help="Rename what is in the data directory; nothing is deleted.")
    ] = False,
) -> None:
    """Restore a backup as the data directory of a stopped service.

    The next start rebuilds the tables from the log, which takes longer than usual.
    """
    from infra.service import backup

    settings = _settings()
    contents, made = backup.restore(settings, directory.absolute(), aside)
    _show_aside(made)
    typer.echo(f"{settings.data} has {', '.join(contents.holds)} of {directory}. Start the service.")


def salvage() -> None:
    """Keep what is readable of a stopped service's damaged log and database; set the rest aside.

    Restore a backup instead if one is new enough.
    """
    from infra.service.salvage import salvage

    settings = _settings()
    for line in salvage(settings):
        typer.echo(line)
    typer.echo("Start the service.")


def set_aside(yes: Yes = False) -> None:
    """Set the whole data directory of a stopped service aside; the next start begins empty."""
    from infra.service import data_directory

    settings = _settings()
    if not data_directory.contents(settings):
        typer.echo(f"There is nothing in {settings.data}.")
        return
    with data_directory.stopped(settings):
        confirm(yes, f"Set aside what is in {settings.data}, and begin with nothing?")
        _show_aside(data_directory.set_aside(settings, data_directory.contents(settings)))
