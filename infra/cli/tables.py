"""Tables for people; all commands print their columns with this module."""

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
    """Return an empty table with right-aligned columns in `right`; without any name it has no header."""
    empty = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=any(columns))
    for name in columns:
        empty.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    return empty


def print_parts(*parts: RenderableType) -> None:
    """Print tables and texts below each other. Long cells wrap only on a terminal."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(Group(*parts))
        return
    console.width = ANY_WIDTH
    with console.capture() as capture:
        console.print(Group(*parts))
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_columns(lines: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    """Print lines in columns with at least the widths in `least`, if given; return the widths."""
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
    """Return words literally: without markup or terminal control characters."""
    return Text("".join(one for one in " ".join(words.split()) if one.isprintable()), style)
