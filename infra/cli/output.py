"""What commands print, columns for people and JSON for programs, and what they ask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

Value = str | int | float | bool | None
Row = Mapping[str, Value]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def show(row: Row, as_json: bool) -> None:
    """Print one row, a line for each of its values."""
    _print(row, as_json, [[name, _text(value)] for name, value in row.items()])


def show_all(rows: Sequence[Row], as_json: bool) -> None:
    """Print rows of the same names under a line of these names; nothing for people when there are none."""
    names = [list(row) for row in rows[:1]]
    _print(rows, as_json, names + [[_text(value) for value in row.values()] for row in rows])


def show_columns(lines: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    """Print lines in columns, at least so wide where that is given; return how wide they are."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths = list(map(max, widths, least or widths))
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return widths


def confirm(yes: bool, question: str) -> None:
    """Go on if `yes` is set or the answer is; else the command ends here."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _print(value: Row | Sequence[Row], as_json: bool, lines: list[list[str]]) -> None:
    if as_json:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    show_columns(lines)


def _text(value: Value) -> str:
    return "-" if value is None or value == "" else str(value)
