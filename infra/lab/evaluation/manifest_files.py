"""Writes a model's manifest, heads and table of tags."""

import csv
import hashlib
import io
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.models.manifests import AnyManifest
from streams.models.manifest import FILE, Heads, Manifest
from streams.models.protocol import Floats

TAGS: Final = "tags.csv"


def write(directory: Path, manifest: AnyManifest) -> None:
    """Write a manifest, indented; equal content gives equal bytes."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (directory / FILE).write_bytes(text + b"\n")


def write_heads(path: Path, rows: Floats) -> Heads:
    """Write heads, float32[heads, dimension + 1], and return their manifest entry."""
    file = io.BytesIO()
    np.save(file, rows)
    path.write_bytes(file.getvalue())
    return Heads(path.name, hashlib.sha256(file.getvalue()).hexdigest())


def write_tags(directory: Path, manifest: Manifest) -> None:
    """Write tags.csv, which converters read, with the classes and points of the manifest.

    Tags with a head keep their old row, because the table describes the model without heads.
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
