"""Output of commands (columns for people, JSON for programs), and questions to the user."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from topics.errors import BadRequest, EarshotError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT: Final = 1

Value = str | int | float | bool | None
Row = Mapping[str, Value]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Most = Annotated[int, typer.Option("--most", "-n", min=1, max=sys.maxsize, help="Maximum number.")]


class _Output(io.FileIO):
    """The standard output: its writer ends with its reader, and its errors name it."""

    #: Any thread may end the process. That would hide that a key is lost.
    may_end: ClassVar[bool] = True

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and self.may_end:
                # Like other tools: end quietly, with the status that shells report for SIGPIPE.
                os._exit(128 + signal.SIGPIPE)
            # Otherwise Python would report the error once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
            raise OSError(error.errno, error.strerror, "standard output") from None


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that the caller closed, so that no file or socket takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def watch_output() -> None:
    """Name the standard output in its errors, and end when its reader ends, as in `earshot detect FILES | head`.

    This covers only the output: Python ignores SIGPIPE because of sockets, whose peers may go at any time.
    """
    with suppress(OSError):  # It may be a directory, or something that captures the output of a test.
        now = sys.stdout
        buffer = io.BufferedWriter(_Output(now.fileno(), "w", closefd=False))
        lines = isinstance(now, io.TextIOWrapper) and now.line_buffering
        sys.stdout = io.TextIOWrapper(buffer, now.encoding, now.errors, line_buffering=lines)


def silence_libraries() -> None:
    """Drop what C libraries print about damaged audio, as the service's decoders do; `sys.stderr` still prints."""
    with suppress(OSError):  # It may be something that captures the output of a test.
        number = sys.stderr.fileno()
        sys.stderr.flush()
        sys.stderr = open(os.dup(number), "w", 1, sys.stderr.encoding, sys.stderr.errors)  # noqa: SIM115
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def show(row: Row, as_json: bool) -> None:
    """Print one row, one line for each value."""
    _print(row, as_json, [[name, _text(value)] for name, value in row.items()])


def show_key(row: Row, as_json: bool, again: str) -> None:
    """Print one row with a new key, which nobody can read later.

    Raises:
        EarshotError: it cannot be printed; the message says that the command `again` makes another key.
    """
    _Output.may_end = False
    try:
        show(row, as_json)
    except (OSError, UnicodeEncodeError) as error:
        fault = f"standard output: {error.strerror if isinstance(error, OSError) else error}"
        raise EarshotError(f"the new key is lost, it could not be printed: {fault}; `{again}` makes another") from None


def show_all(rows: Sequence[Row], as_json: bool) -> None:
    """Print rows under a line of their names; for people, print nothing if there are no rows."""
    names = [list(row) for row in rows[:1]]
    _print(rows, as_json, names + [[_text(value) for value in row.values()] for row in rows])


def confirm(yes: bool, question: str) -> None:
    """Ask for confirmation unless `yes` is set; end the command if it is denied.

    Raises:
        BadRequest: there is no terminal that could answer, and the input does not either.
    """
    if yes:
        return
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)  # The line has the question.
        raise BadRequest("not confirmed, and nobody can be asked without a terminal: give --yes") from None


def _print(value: Row | Sequence[Row], as_json: bool, lines: list[list[str]]) -> None:
    if as_json:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif lines:
        from infra.cli.tables import print_columns

        print_columns(lines)


def _text(value: Value) -> str:
    return "-" if value is None or value == "" else str(value)
