"""A model with one tag more than another: the same graph, one more head."""

import hashlib
import io
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.training import background
from streams.models import heads
from streams.models.manifest import FILE, Evaluation, Heads, Look, Manifest, ModelTag, SecondModel, SecondTag
from streams.models.protocol import Floats
from topics.errors import BadRequest

NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
HEADS: Final = "heads.npy"
#: The operating point of every tag with a head; the bias of the head is shifted to fit it.
POINT: Final = 0.5


def check_name(manifest: Manifest, name: str, replace: bool) -> None:
    """Check the name of a new tag.

    Raises:
        BadRequest: it is not a valid name, or the model has such a tag and `replace` is not set.
    """
    if not NAME.fullmatch(name):
        raise BadRequest(f"{name!r} is not a name of a tag: a capital letter, then letters, digits and _")
    if not replace and name in [tag.name for tag in manifest.tags]:
        raise BadRequest(f"{manifest.model_id} has a tag {name} already; --replace learns it anew")


def write(base: Path, manifest: Manifest, name: str, category: str, head: Floats, clips: int, out: Path) -> Manifest:
    """Write the model in `base` into the directory `out`, with one more tag or a new head for one that it has.

    Args:
        base: Directory of the model.
        manifest: Of the model.
        name: Of the tag.
        category: Of the tag.
        head: float32[dimension + 1], whose score is to be reported from `POINT` on.
        clips: Recordings that it was learnt from.
        out: Directory, made if need be.

    Raises:
        EngineError: the heads of the model cannot be read.
    """
    rows = np.empty((0, len(head)), np.float32) if manifest.heads is None else heads.read(base, manifest.heads)
    before = next((tag for tag in manifest.tags if tag.name == name), None)
    row = len(rows) if before is None or before.head is None else before.head
    tag = ModelTag(name, category, classes=(), point=POINT, head=row, clips=clips)
    tags = (*manifest.tags, tag) if before is None else tuple(tag if one is before else one for one in manifest.tags)
    file = io.BytesIO()
    np.save(file, np.concatenate((rows[:row], head[None], rows[row + 1 :])))
    changed = msgspec.structs.replace(
        manifest,
        version=f"{manifest.version}+{name}" if before is None else manifest.version,
        tags=tags,
        heads=Heads(HEADS, hashlib.sha256(file.getvalue()).hexdigest()),
        # The figures belong to the model without the tag; of the other tags all stays true.
        figures={},
        evaluation=_without(manifest.evaluation, name),
    )
    if changed.second is not None:
        at = len(manifest.tags) if before is None else manifest.tags.index(before)
        changed = msgspec.structs.replace(changed, second=_without_say(changed.second, at))
    shutil.copytree(base, out, dirs_exist_ok=True)
    (out / HEADS).write_bytes(file.getvalue())
    (out / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(changed), indent=1) + b"\n")
    if background.path_for(manifest).is_file():
        shutil.copyfile(background.HERE / background.ATTRIBUTION, out / background.ATTRIBUTION)
    return changed


def _without_say(second: SecondModel, at: int) -> SecondModel:
    """Return a second model that has no say in the tag at an index, perhaps a new one at the end."""

    def look(before: Look) -> Look:
        return msgspec.structs.replace(before, points=(*before.points[:at], POINT, *before.points[at + 1 :]))

    tags = (*second.tags[:at], SecondTag(), *second.tags[at + 1 :])
    return msgspec.structs.replace(second, tags=tags, stream=look(second.stream), recording=look(second.recording))


def _without(evaluation: Evaluation | None, name: str) -> Evaluation | None:
    if evaluation is None:
        return None
    others = {tag: counts for tag, counts in evaluation.tags.items() if tag != name}
    return msgspec.structs.replace(evaluation, tags=others)
