"""Output of commands (columns for people, JSON for programs), and questions to the user."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT: Final = 1

Value = str | int | float | bool | None
Row = Mapping[str, Value]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class _Pipe(io.FileIO):
    """A pipe whose writer ends with its reader."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            # Like other tools: end quietly, with the status that shells report for SIGPIPE. Any thread may do this.
            os._exit(128 + signal.SIGPIPE)


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


def end_with_the_reader() -> None:
    """End this process when the reader of its output ends, as in `earshot detect FILES | head`.

    This covers only the output: Python ignores SIGPIPE because of sockets, whose peers may go at any time.
    """
    with suppress(OSError):  # There may be no output.
        if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
            raw = _Pipe(STDOUT, "w", closefd=False)
            sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), sys.stdout.encoding, sys.stdout.errors)


def show(row: Row, as_json: bool) -> None:
    """Print one row, one line for each value."""
    _print(row, as_json, [[name, _text(value)] for name, value in row.items()])


def show_all(rows: Sequence[Row], as_json: bool) -> None:
    """Print rows under a line of their names; for people, print nothing if there are no rows."""
    names = [list(row) for row in rows[:1]]
    _print(rows, as_json, names + [[_text(value) for value in row.values()] for row in rows])


def confirm(yes: bool, question: str) -> None:
    """Ask for confirmation unless `yes` is set; end the command if it is denied."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _print(value: Row | Sequence[Row], as_json: bool, lines: list[list[str]]) -> None:
    if as_json:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif lines:
        from infra.cli.tables import print_columns

        print_columns(lines)


def _text(value: Value) -> str:
    return "-" if value is None or value == "" else str(value)
