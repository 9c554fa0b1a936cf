"""`earshot explore`: show what a model hears in a file, as a table and a picture; needs no running service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import local
from infra.cli.output import silence_libraries
from topics.errors import BadRequest, EarshotError

if TYPE_CHECKING:
    from infra.lab.explore.table import TagSummary


def explore(
    file: Annotated[Path, typer.Argument(help="A WAV, MP3, Ogg, FLAC or AIFF file.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Also draw a picture into this file: .png or .svg.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing picture.")] = False,
    model: local.Model = None,
    top: Annotated[int, typer.Option(min=1, max=60, help="Number of tags shown, most probable first.")] = 10,
    tags: Annotated[str, typer.Option(help="Show these tags instead, comma-separated.")] = "",
    start: Annotated[float, typer.Option(min=0, help="Where to begin, in seconds.")] = 0.0,
    end: Annotated[float | None, typer.Option(min=0, help="Where to end, in seconds.")] = None,
    sensitivity: Annotated[int, typer.Option(min=-2, max=2, help="2 reports the fewest sounds, -2 the most.")] = 0,
) -> None:
    """Print which tags a model hears in a file; with -o draw the probability of each over time."""
    if out is not None:
        _check(out, force)
    if end is not None and end <= start:
        raise BadRequest(f"--end {end:g} is not after --start {start:g}")
    from infra.lab.explore import section, table

    if out is not None:  # Report a missing drawing library before the work.
        from infra.lab.explore import picture

    engine, _ = local.engine(model)
    silence_libraries()
    heard = section.analyse_section(file, engine, start, end)
    columns = table.choose_columns(heard, top, [name for name in tags.split(",") if name])
    _print([table.tag_summary(heard, column, sensitivity) for column in columns])
    if out is None:
        return
    try:
        picture.save(heard, columns, sensitivity, file.name, out)
    except OSError as error:
        raise EarshotError(f"{out}: {error.strerror}") from error
    typer.echo(str(out))


def _check(path: Path, force: bool) -> None:
    if path.suffix not in (".png", ".svg"):
        raise BadRequest(f"{path}: a picture ends in .png or .svg")
    if path.exists() and not force:
        raise BadRequest(f"{path} is there already: --force replaces it")


def _print(lines: list[TagSummary]) -> None:
    from infra.cli.tables import plain, print_parts, table

    numbers = ("windows", "peak", "reported up to")
    rows = table("tag", *numbers, right=numbers)
    for line in lines:
        up_to = "never" if line.reported_at is None else f"sensitivity {line.reported_at:+d}"
        rows.add_row(plain(line.tag), f"{line.share:.1%}", f"{line.peak:.2f}", up_to)
    print_parts(rows)
