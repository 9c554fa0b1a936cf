"""`earshot evaluate` and `earshot models calibrate`: measure models on the bundled sets or on your recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.models import models
from topics.errors import BadRequest

if TYPE_CHECKING:
    from infra.lab.evaluation.report import EvaluationReport
    from infra.models.registry import RegistryEntry
    from streams.models.manifest import Manifest

#: These sets are not in the repository; tests/data/training has their tables.
WHOLE_SETS = "clips of ESC-50 in sound/, utterances of LibriSpeech in speech/"

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="Name, id or directory; may be repeated. By default all bundled models."),
]
Recordings = Annotated[Path | None, typer.Option(help="Folder of recordings, with --csv.")]
Table = Annotated[
    Path | None,
    typer.Option("--csv", help="Their labels: file,label and optionally start,end (seconds), fold, source."),
]
Labels = Annotated[
    Path | None, typer.Option(help="CSV label,tags[,tolerated]: meanings of labels that are no tags of the model.")
]


def evaluate(
    model: Models = None,
    data: Annotated[Path | None, typer.Option(help=f"Directory of test data for bundled models: {WHOLE_SETS}.")] = None,
    recordings: Recordings = None,
    table: Table = None,
    labels: Labels = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the figures to the manifests of bundled models.")
    ] = False,
    card: Annotated[bool, typer.Option("--card", help="Print the model card, from the manifests.")] = False,
) -> None:
    """Measure models: what they find, what they report falsely, and how many clips set each operating point."""
    import msgspec

    for option, given, needed, base in (
        ("--csv", table, "--recordings FOLDER", recordings),
        ("--labels", labels, "--recordings FOLDER", recordings),
        ("--write", write, "--data DIRECTORY", data),
        ("--model", model, "--data DIRECTORY or --recordings FOLDER", data or recordings),
        ("--json", json, "--data DIRECTORY or --recordings FOLDER", data or recordings),
    ):
        if given and base is None:
            raise BadRequest(f"{option} needs {needed}")
    if data is not None and recordings is not None:
        raise BadRequest("give --data or --recordings, not both")
    if recordings is not None:
        reports = [_on_own(name, recordings, table, labels) for name in model or ("",)]
    elif data is not None:
        reports = _on_bundled(model or [], data, write)
    elif card:
        reports = []
    else:
        raise BadRequest(f"give --data DIRECTORY ({WHOLE_SETS}), or --recordings FOLDER with --csv FILE")
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(reports), indent=2).decode())
    else:
        _print(reports)
    if card:
        from infra.lab.evaluation.bundled import bundled_manifests
        from infra.lab.evaluation.card import model_card

        typer.echo(model_card(bundled_manifests()))


@models.command()
def calibrate(
    name: Annotated[str, typer.Argument(help="Model by name, id or directory.")],
    recordings: Annotated[Path, typer.Option(help="Folder of recordings, with --csv.")],
    table: Annotated[Path, typer.Option("--csv", help="Their labels; see `earshot evaluate`.")],
    labels: Labels = None,
    false_per_minute: Annotated[
        float | None, typer.Option(min=0.01, help="False events a minute allowed for all tags together.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Set the operating points of a model for your recordings; this adds a new model beside it.

    Tags that no recording has keep their points, or get higher ones if they are reported falsely.
    """
    from infra.cli import local
    from infra.lab.evaluation import user_recordings

    engine, directory = local.engine(name)
    clips, skipped = user_recordings.read(engine.manifest, recordings, table, labels)
    outcome = user_recordings.calibrate(engine, clips, skipped, false_per_minute)
    entry = _add(directory, outcome.manifest)
    if json:
        import msgspec

        typer.echo(msgspec.json.encode(outcome.report).decode())
        return
    _print([outcome.report])
    typer.echo(f"added {entry.model_id}; use it with: earshot models use {entry.model_id}")


def _on_bundled(names: list[str], data: Path, write: bool) -> list[EvaluationReport]:
    from infra import scratch
    from infra.lab.evaluation import bundled
    from infra.models.registry import BUNDLED, Registry
    from infra.settings import load

    scratch.prepare()
    registry = Registry(load().data)
    directories = [registry.find(name) for name in names] or [
        entry.directory for entry in registry.entries() if entry.bundled
    ]
    if write and (others := [directory.name for directory in directories if directory.parent != BUNDLED]):
        raise BadRequest(f"--write: {others[0]} is not a bundled model")
    reports = []
    for directory in directories:
        reports.append(bundled.evaluate_model(directory, data))
        if write:
            bundled.write_figures(directory, reports[-1])
    return reports


def _on_own(name: str, recordings: Path, table: Path | None, labels: Path | None) -> EvaluationReport:
    from infra.cli import local
    from infra.lab.evaluation import report, user_recordings

    if table is None:
        raise BadRequest("--recordings needs --csv FILE with their labels")
    engine, _ = local.engine(name or None)
    clips, skipped = user_recordings.read(engine.manifest, recordings, table, labels)
    return report.evaluate_recordings(engine, clips, skipped)


def _add(directory: Path, manifest: Manifest) -> RegistryEntry:
    """Add a copy of the model in a directory with another manifest."""
    import shutil
    import tempfile

    from infra.models import manifests
    from infra.models.registry import Registry
    from infra.settings import load

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(directory, Path(scratch) / "model"))
        manifests.write(copy, manifest)
        return Registry(load().data).add(copy)


def _print(reports: Sequence[EvaluationReport]) -> None:
    from rich.console import Console

    from infra.lab.evaluation import tables

    console = Console()
    for report in reports:
        tables.print_report(report, console)
