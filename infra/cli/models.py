"""Commands for models: `earshot models`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import AsJson, Row, Yes, confirm, show, show_all
from infra.errors import variable

if TYPE_CHECKING:
    from infra.models.manifests import AnyManifest
    from infra.models.registry import Registry, RegistryEntry
    from streams.models.manifest import Manifest

#: Other modules add their commands to it.
models = typer.Typer(help="Models: list and check them, and choose the one in use.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a model, or a directory with a manifest.")]


@models.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the bundled and the added models."""
    registry, in_use = _opened()
    entries = registry.entries()
    rows = [_row(entry, in_use) for entry in entries]
    if as_json:
        show_all([{**row, "fault": entry.fault} for row, entry in zip(rows, entries, strict=True)], as_json)
        return
    show_all(rows, as_json)
    for entry in entries:
        if entry.fault is not None:
            typer.echo(f"earshot: {entry.fault}", err=True)


@models.command("show")
def show_model(name: Name, as_json: AsJson = False) -> None:
    """Print everything about a model: licence, source, input, tags with their points, figures."""
    import msgspec

    from infra.models import manifests
    from streams.models.manifest import Manifest

    registry, in_use = _opened()
    directory = registry.find(name)
    manifest = manifests.read(directory)
    about: Row = {"model": manifest.model_id, "directory": str(directory), "in_use": manifest.model_id == in_use}
    if as_json:
        typer.echo(json.dumps({**about, "manifest": msgspec.to_builtins(manifest)}, indent=2, ensure_ascii=False))
        return
    show({**about, **_details(directory, manifest)}, as_json)
    if isinstance(manifest, Manifest):
        _print_tags(manifest)


@models.command("add")
def add(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_URL",
            help="A directory with a manifest, a .zip or .tar of one, or a URL of such an archive; with --recipe a "
            "graph (.onnx, .tflite).",
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Another name for it.")] = None,
    recipe: Annotated[str | None, typer.Option(help="What the graph is: see infra/models/README.md.")] = None,
    sha256: Annotated[str | None, typer.Option(help="SHA-256 of the file; URLs need it, here or as #sha256=.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a model and keep a copy of it; it scores nothing until `earshot models use`."""
    registry, in_use = _opened()
    made_by = None
    if recipe is not None:
        from infra.lab.converters.recipes import write_model

        made_by = functools.partial(write_model, recipe)
    show(_row(registry.add(source, name=name, recipe=made_by, sha256=sha256), in_use), as_json)


@models.command("check")
def check(name: Name, as_json: AsJson = False) -> None:
    """Check all of a model: hashes, graph, shapes, and scores of silence and noise."""
    from infra.models import checks

    registry, _ = _opened()
    passed = checks.check(registry.find(name))
    show({"model": passed.model_id, "result": "usable", "ms_per_window": round(passed.milliseconds, 2)}, as_json)


@models.command("use")
def use(name: Name, as_json: AsJson = False) -> None:
    """Use a model for new sessions; a service that runs on the same EARSHOT_DATA switches within seconds.

    Open sessions keep their model to the end.
    """
    from infra.settings import load

    registry, _ = _opened()
    entry = registry.use(name)
    setting = load().model
    if setting is not None:
        typer.echo(f"earshot: {variable('model')}={setting} is set and overrides this choice", err=True)
    show({"in_use" if setting is None else "chosen": entry.model_id}, as_json)


@models.command("remove")
def remove(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete an added model that is not in use; its scores stay readable."""
    confirm(yes, f"Delete model {name}?")
    registry, _ = _opened()
    show({"removed": registry.remove(name).model_id}, as_json)


def _opened() -> tuple[Registry, str | None]:
    """Return the registry and the id of the model in use, or None if it cannot be read."""
    from infra import scratch
    from infra.models import manifests
    from infra.models.registry import Registry
    from infra.settings import load
    from topics.errors import EngineError

    settings = load()
    scratch.prepare()
    registry = Registry(settings.data)
    try:
        model = registry.model_for_new_sessions(settings.model)
        return registry, manifests.read(registry.find(model)).model_id
    except EngineError as error:
        typer.echo(f"earshot: the model in use cannot be read: {error}", err=True)
        return registry, None


def _row(entry: RegistryEntry, in_use: str | None) -> Row:
    from infra.models import manifests
    from streams.models.manifest import Manifest

    manifest = entry.manifest
    facts: Row = {"kind": None, "licence": None, "input": None, "tags": None, "mb": None}
    if manifest is not None:
        facts = {
            "kind": manifests.kind(manifest),
            "licence": manifest.licence,
            "input": _input(manifest),
            "tags": len(manifest.tags) if isinstance(manifest, Manifest) else None,
            "mb": _megabytes(*(entry.directory / graph.file for graph in manifests.graphs(manifest))),
        }
    return {
        "model": entry.model_id,
        **facts,
        "from": "bundled" if entry.bundled else "added",
        "state": "broken" if manifest is None else "in use" if entry.model_id == in_use else None,
    }


def _input(manifest: AnyManifest) -> str:
    from infra.models.speech_manifest import SpeechInput
    from streams.models.manifest import LogMel, Waveform

    features = manifest.input
    rate = f"{features.sample_rate / 1000:g} kHz"
    match features:
        case LogMel():
            return f"{features.frames} x {features.bands} log-mel, {rate}"
        case Waveform():
            return f"{features.samples} samples, {rate}"
        case SpeechInput():
            return f"{features.seconds} s x {features.bands} log-mel, {rate}"
        case _:
            return f"voice, {rate}"


def _megabytes(*paths: Path) -> float:
    return round(sum(path.stat().st_size for path in paths) / 1e6, 2)


def _details(directory: Path, manifest: AnyManifest) -> Row:
    from infra.models import manifests
    from streams.models.manifest import LogMel, Manifest

    row = {
        "version": manifest.version,
        "kind": manifests.kind(manifest),
        "licence": manifest.licence,
        "source": manifest.source,
        "graph": f"{manifest.graph.file}, {_megabytes(directory / manifest.graph.file)} MB",
        "sha256": manifest.graph.sha256,
        "input": _input(manifest),
    }
    if isinstance(manifest, Manifest):
        features = manifest.input
        row["patch"] = f"{1000 * features.samples / features.sample_rate:g} ms"
        if isinstance(features, LogMel):
            row["frames"] = (
                f"{features.window} samples every {features.hop}, {1000 * features.hop / features.sample_rate:g} ms"
            )
        row["classes"] = str(len(manifest.classes))
        row["tags"] = str(len(manifest.tags))
        if (second := manifest.second) is not None:
            row["second"] = f"{second.name}, {second.licence}, {second.source}"
            row["second_graph"] = f"{second.graph.file}, {_megabytes(directory / second.graph.file)} MB"
            row["second_sha256"] = second.graph.sha256
    return {**row, **{name: f"{value:g}" for name, value in sorted(manifest.figures.items())}}


def _print_tags(manifest: Manifest) -> None:
    from infra.cli.tables import plain, print_parts, table

    # Models with another second look at streams have separate points there.
    streams = () if manifest.second is None else ("in streams",)
    points_of = [manifest.points(recording=True), *(manifest.points(recording=False) for _ in streams)]
    rows = table("tag", "category", "point", *streams, "made of", right=("point", *streams))
    for tag, *points in zip(manifest.tags, *points_of, strict=True):
        parts = [manifest.classes[index] for index in tag.classes]
        parts += [] if tag.head is None else [f"head {tag.head}"]
        rows.add_row(plain(tag.name), plain(tag.category), *(f"{point:g}" for point in points), plain("; ".join(parts)))
    print_parts(rows)
