"""Tables for people: every command that prints columns prints them here."""

from collections.abc import Collection, Sequence
from typing import Final

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

#: Wider than any table.
ANY_WIDTH: Final = 100_000


def table(*columns: str, right: Collection[str] = (), title: str | Text | None = None) -> Table:
    """Return an empty table; the columns named in `right` hold numbers. Without any name it has no header."""
    empty = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=any(columns))
    for name in columns:
        empty.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    return empty


def print_parts(*parts: RenderableType) -> None:
    """Print tables and texts, one below the other. Only a terminal has an edge that breaks long cells."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(Group(*parts))
        return
    console.width = ANY_WIDTH
    with console.capture() as capture:
        console.print(Group(*parts))
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_columns(lines: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    """Print lines in columns, at least so wide where that is given; return how wide they are."""
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    widths = list(map(max, widths, least or widths))
    columns = table(*[""] * len(widths))
    for column, width in zip(columns.columns, widths, strict=True):
        column.min_width = width
    for line in lines:
        columns.add_row(*map(Text, line))
    print_parts(columns)
    return widths


def plain(words: str, style: str = "") -> Text:
    """Return words as they are: no markup, and nothing that a terminal would obey."""
    return Text("".join(one for one in " ".join(words.split()) if one.isprintable()), style)
