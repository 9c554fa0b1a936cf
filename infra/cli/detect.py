"""`earshot detect`: send whole files and print the sounds in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from infra.cli import remote

if TYPE_CHECKING:
    from earshot_client import Client, Event, Sensitivity


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a file: its windows, or an error."""

    file: str
    events: tuple[Event, ...] | None = None
    error: str | None = None


def register(app: typer.Typer) -> None:
    app.command()(detect)


def detect(
    files: Annotated[list[Path], typer.Argument(help="WAV, MP3, Ogg, FLAC or AIFF files.")],
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line for each file.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Files sent at the same time.")] = 4,
    sensitivity: remote.DefaultSensitivity = 0,
    tag_sensitivity: remote.TagSensitivity = None,
) -> None:
    """Send files and print the sounds in each, in the order given; exit status 1 if a file failed."""
    sensitivities = remote.sensitivity(sensitivity, tag_sensitivity)
    failed = False
    with remote.connected(url, key_file) as client:
        for report in _reports(client, files, sensitivities, jobs):
            if json:
                typer.echo(msgspec.json.encode(report).decode())
            else:
                _print_table(report)
            if report.error is not None:
                failed = True
                typer.echo(f"earshot: {report.file}: {report.error}", err=True)
    if failed:
        raise typer.Exit(1)


def _reports(client: Client, files: list[Path], sensitivity: Sensitivity, jobs: int) -> Iterator[Report]:
    """Yield the report of each file in order, while later files are in progress."""
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(lambda file: _report(client, file, sensitivity), files)
    except KeyboardInterrupt:
        # The threads may wait for an answer for half a minute.
        os._exit(128 + signal.SIGINT)
    finally:
        pool.shutdown(cancel_futures=True)


def _report(client: Client, file: Path, sensitivity: Sensitivity) -> Report:
    """Send a file. Raise if the service is unreachable or rejects the key, because that is not the file's fault."""
    from earshot_client import EarshotClientError, ServiceUnreachable, WrongKey

    try:
        return Report(str(file), tuple(client.detect(file, sensitivity)))
    except (ServiceUnreachable, WrongKey):
        raise
    except OSError as error:
        return Report(str(file), error=error.strerror or str(error))
    except EarshotClientError as error:
        return Report(str(file), error=str(error))


def _print_table(report: Report) -> None:
    from earshot_client import Runs
    from infra.cli.tables import plain, print_parts, table

    if report.events is None:
        return
    rows = table("from", "to", "probability", "sound", right=("from", "to", "probability"))
    runs = Runs()
    ended = [run for event in report.events for run in runs.add(event)] + runs.close()
    for run in sorted(ended, key=lambda run: (run.start, -run.probability)):
        rows.add_row(f"{run.start:g} s", f"{run.end:g} s", f"{run.probability:.2f}", plain(run.name))
    if not ended:
        rows.add_row("", "", "", "nothing recognised")
    # A table title would wrap at the table's width, but programs match the names.
    print_parts(plain(report.file, "italic"), rows)
