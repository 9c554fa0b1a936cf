"""Writes a model's manifest and heads."""

import hashlib
import io
from pathlib import Path

import msgspec
import numpy as np

from infra.models.manifests import AnyManifest
from streams.models.manifest import FILE, Heads
from streams.models.protocol import Floats


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
