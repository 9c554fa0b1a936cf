"""`earshot detect`: send whole files and print the sounds in them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from infra.cli import remote

if TYPE_CHECKING:
    from earshot_client import Client, Event, Sensitivity, Session

#: Seconds to delete sessions after Ctrl-C.
DELETE_SECONDS: Final = 5.0


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a file: its windows, or an error."""

    file: str
    events: tuple[Event, ...] | None = None
    error: str | None = None


def detect(
    files: Annotated[list[Path], typer.Argument(help="WAV, MP3, Ogg, FLAC, AIFF, AU or CAF files.")],
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line for each file.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Files sent at the same time.")] = 4,
    sensitivity: remote.DefaultSensitivity = 0,
    tag_sensitivity: remote.TagSensitivity = None,
) -> None:
    """Send files and print the sounds in each, in the order given; exit status 1 if a file failed.

    Ctrl-C deletes the sessions of files that are not done.
    """
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
    unfinished: dict[str, Path] = {}
    try:
        yield from pool.map(lambda file: _report(client, file, sensitivity, unfinished), files)
    except KeyboardInterrupt:
        try:
            pool.shutdown(wait=False, cancel_futures=True)
            _delete(client, unfinished)
        finally:
            # The threads may wait for an answer for half a minute.
            os._exit(128 + signal.SIGINT)
    finally:
        pool.shutdown(cancel_futures=True)


def _delete(client: Client, unfinished: Mapping[str, Path]) -> None:
    from earshot_client import EarshotClientError

    end = time.monotonic() + DELETE_SECONDS
    for session_id, file in list(unfinished.items()):
        try:
            client.delete_session(session_id, timeout=max(end - time.monotonic(), 0.1))
        except EarshotClientError as error:
            typer.echo(f"earshot: {file}: its session is not deleted, and may still be analysed: {error}", err=True)


def _report(client: Client, file: Path, sensitivity: Sensitivity, unfinished: dict[str, Path]) -> Report:
    """Send a file. Raise if the service is unreachable or rejects the key, because that is not the file's fault."""
    from earshot_client import EarshotClientError, ServiceUnreachable, WrongKey

    sessions: list[str] = []

    def begin(session: Session) -> None:
        sessions.append(session.id)
        unfinished[session.id] = file

    try:
        return Report(str(file), tuple(client.detect(file, sensitivity, on_session=begin)))
    except (ServiceUnreachable, WrongKey):
        raise
    except OSError as error:
        return Report(str(file), error=error.strerror or str(error))
    except EarshotClientError as error:
        return Report(str(file), error=str(error))
    finally:
        for session_id in sessions:
            del unfinished[session_id]


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
