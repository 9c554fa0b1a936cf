"""Adds a tag to a model: the same graph with one more head."""

import hashlib
import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.models import manifests
from infra.teaching import background
from infra.teaching.background import ContextKind
from streams.models import heads
from streams.models.manifest import Evaluation, Heads, Manifest, ModelTag, SecondTag
from streams.models.own_sounds import POINT
from streams.models.protocol import Floats

HEADS: Final = "heads.npy"


def write(base: Path, manifest: Manifest, name: str, category: str, head: Floats, clips: int, out: Path) -> Manifest:
    """Write the model in `base` into the directory `out`, with a new tag or a new head for an existing tag.

    For a model with a second one use `write_second`. `head`, float32[dimension + 1], reports scores from `POINT` on and
    was learnt from `clips` recordings.

    Raises:
        EngineError: The heads of the model cannot be read.
    """
    rows = np.empty((0, len(head)), np.float32) if manifest.heads is None else heads.read(base, manifest.heads)
    before = next((tag for tag in manifest.tags if tag.name == name), None)
    row = len(rows) if before is None or before.head is None else before.head
    shutil.copytree(base, out, dirs_exist_ok=True)
    changed = _with_tag(manifest, ModelTag(name, category, classes=(), point=POINT, head=row, clips=clips))
    return _finish(msgspec.structs.replace(changed, heads=_with_head(rows, row, head, out / HEADS)), out)


def write_second(
    base: Path,
    manifest: Manifest,
    name: str,
    category: str,
    learnt: Mapping[ContextKind, Floats],
    gate: float,
    clips: int,
    out: Path,
) -> Manifest:
    """Write a model with a second one as `write` does, with a tag that only the second model scores.

    Args:
        learnt: Heads as for `write`, for contexts of streams and of recordings.
        gate: Score of the first model from which the tag's recordings are looked at; a lower gate of the model stays.

    Raises:
        EngineError: The heads of the model cannot be read.
    """
    assert manifest.second is not None
    before = [tag.name for tag in manifest.tags]
    at = before.index(name) if name in before else len(before)
    known = manifest.second.tags[at].head if name in before else None
    shutil.copytree(base, out, dirs_exist_ok=True)
    contexts = {}
    row = 0
    for kind, head in learnt.items():
        context = manifest.second.context(kind == "recording")
        rows = heads.read(base, context.heads)
        row = len(rows) if known is None else known
        points = (*context.points[:at], POINT, *context.points[at + 1 :])
        contexts[kind] = msgspec.structs.replace(
            context, points=points, heads=_with_head(rows, row, head, out / context.heads.file)
        )
    second = msgspec.structs.replace(
        manifest.second,
        tags=(*manifest.second.tags[:at], SecondTag((), row), *manifest.second.tags[at + 1 :]),
        gate=min(gate, manifest.second.gate),
        stream=contexts["stream"],
        recording=contexts["recording"],
    )
    changed = _with_tag(manifest, ModelTag(name, category, classes=(), point=POINT, clips=clips))
    return _finish(msgspec.structs.replace(changed, second=second), out)


def _with_tag(manifest: Manifest, tag: ModelTag) -> Manifest:
    """Return a manifest with a tag that replaces the one of its name or is appended."""
    names = [one.name for one in manifest.tags]
    new = tag.name not in names
    return msgspec.structs.replace(
        manifest,
        version=f"{manifest.version}+{tag.name}" if new else manifest.version,
        tags=(*manifest.tags, tag) if new else tuple(tag if one.name == tag.name else one for one in manifest.tags),
        # The figures belong to the model without the tag; those of other tags stay true.
        figures={},
        evaluation=_without(manifest.evaluation, tag.name),
    )


def _with_head(rows: Floats, row: int, head: Floats, path: Path) -> Heads:
    """Write heads, float32[heads, dimension + 1], with a row replaced or appended."""
    return write_heads(path, np.concatenate((rows[:row], head[None], rows[row + 1 :])))


def write_heads(path: Path, rows: Floats) -> Heads:
    """Write heads, float32[heads, dimension + 1], and return their manifest entry."""
    file = io.BytesIO()
    np.save(file, rows)
    path.write_bytes(file.getvalue())
    return Heads(path.name, hashlib.sha256(file.getvalue()).hexdigest())


def _finish(changed: Manifest, out: Path) -> Manifest:
    manifests.write(out, changed)
    if background.path_for(changed).is_file():
        shutil.copyfile(background.HERE / background.ATTRIBUTION, out / background.ATTRIBUTION)
    return changed


def _without(evaluation: Evaluation | None, name: str) -> Evaluation | None:
    if evaluation is None:
        return None
    others = {tag: counts for tag, counts in evaluation.tags.items() if tag != name}
    return msgspec.structs.replace(evaluation, tags=others)
