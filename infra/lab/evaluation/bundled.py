"""The bundled models, each measured as its kind asks for, and their figures written into their manifests."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import msgspec

from infra import models
from infra.lab.evaluation import report, voice
from infra.lab.evaluation.report import Report
from infra.models import manifests
from infra.models.manifests import AnyManifest
from streams.models.manifest import FILE, Manifest
from streams.models.onnx import OnnxEngine
from streams.voice.manifest import SpeakerManifest
from streams.voice.speaker import OnnxSpeakerEngine

TAGS: Final = "tags.csv"


def measure(directory: Path, data: Path) -> Report:
    """Measure a model of any kind on a data directory.

    Raises:
        BadRequest: the recordings are not there.
        EngineError: the model cannot be used, or failed.
    """
    known = manifests.read(directory)
    if isinstance(known, SpeakerManifest):
        return voice.of_speakers(OnnxSpeakerEngine(directory), data)
    return report.of_bundled(OnnxEngine(directory), data, OnnxEngine(models.directory()))


def shipped() -> list[AnyManifest]:
    """Return the manifests of the bundled models, the default first."""
    directories = sorted(path.parent for path in models.directory().parent.glob(f"*/{FILE}"))
    return [manifests.read(path) for path in sorted(directories, key=lambda path: path.name != models.DEFAULT)]


def write_figures(directory: Path, figures: dict[str, float]) -> None:
    """Put figures into a manifest; the model's id stays."""
    write(directory, msgspec.structs.replace(manifests.read(directory), figures=figures))


def write(directory: Path, manifest: AnyManifest) -> None:
    """Write a manifest as the scripts that make models do."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (directory / FILE).write_bytes(text + b"\n")


def write_tags(directory: Path, manifest: Manifest) -> None:
    """Write the table of tags that a converter reads, with the manifest's classes and points.

    A tag with a head keeps its row: the table is of the model without heads.
    """
    before = {}
    if (directory / TAGS).is_file():
        with (directory / TAGS).open(newline="", encoding="utf-8") as lines:
            before = {row["tag"]: row for row in csv.DictReader(lines)}
    with (directory / TAGS).open("w", newline="", encoding="utf-8") as lines:
        table = csv.writer(lines, lineterminator="\n")
        table.writerow(("tag", "category", "audioset_classes", "point", "clips"))
        for tag in manifest.tags:
            if tag.head is not None and tag.name in before:
                table.writerow(before[tag.name].values())
                continue
            classes = "|".join(manifest.classes[index] for index in tag.classes)
            table.writerow((tag.name, tag.category, classes, tag.point, tag.clips))
