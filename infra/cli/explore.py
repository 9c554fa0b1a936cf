"""`earshot explore`: what a model hears in a file, as a picture and a table; needs no running service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import local
from topics.errors import BadRequest, EarshotError

if TYPE_CHECKING:
    from infra.lab.explore.table import Line


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explore)


def explore(
    file: Annotated[Path, typer.Argument(help="A WAV, MP3, Ogg, FLAC or AIFF file.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Picture, .png or .svg; by default the file's name with .png, here."),
    ] = None,
    model: local.Model = None,
    top: Annotated[int, typer.Option(min=1, max=60, help="Tags shown, those heard most surely first.")] = 10,
    tags: Annotated[str, typer.Option(help="Show these tags instead: names with commas.")] = "",
    start: Annotated[float, typer.Option(min=0, help="Where to begin, in seconds.")] = 0.0,
    end: Annotated[float | None, typer.Option(min=0, help="Where to end, in seconds.")] = None,
    sensitivity: Annotated[int, typer.Option(min=-2, max=2, help="2 reports the fewest sounds, -2 the most.")] = 0,
) -> None:
    """Draw what a model hears in a file: the spectrogram, and the probability of each tag over time."""
    path = out or Path(f"{file.stem}.png")
    if path.suffix not in (".png", ".svg"):
        raise BadRequest(f"{path}: a picture ends in .png or .svg")
    if end is not None and end <= start:
        raise BadRequest(f"--end {end:g} is not after --start {start:g}")
    from infra.lab.explore import hearing, picture, table

    engine, _ = local.engine(model)
    heard = hearing.hear(file, engine, start, end)
    columns = table.choose(heard, top, [name for name in tags.split(",") if name])
    _print(table.lines(heard, columns, sensitivity))
    try:
        picture.save(heard, columns, sensitivity, file.name, path)
    except OSError as error:
        raise EarshotError(f"{path}: {error.strerror}") from error
    typer.echo(str(path))


def _print(lines: list[Line]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("tag", box=None, pad_edge=False)
    for name in ("windows", "peak", "reported up to"):
        table.add_column(name, justify="right")
    for line in lines:
        up_to = "never" if line.reported_at is None else f"sensitivity {line.reported_at:+d}"
        table.add_row(line.tag, f"{line.share:.1%}", f"{line.peak:.2f}", up_to)
    Console().print(table)
