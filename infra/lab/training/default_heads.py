"""Makes `infra/models/yamnet/heads.npy`, for tags that YAMNet's classes detect badly, such as rain and chainsaws.

    python -m infra.lab.training.default_heads --data DATA --out DIR

writes the bundled model with these heads into DIR, as a model to add. A head is the sum of one learnt from recordings,
by `infra.lab.training.heads`, and half of the row of YAMNet's class: the class knows more other sounds, the recordings
know the sound better. Points are set and figures measured on held-out recordings. The same input gives the same bytes.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra import models
from infra.lab.evaluation import report
from infra.lab.evaluation.labels import LABELS
from infra.lab.script import parser, run
from infra.lab.training import attribution
from infra.lab.training.added_tag import HEADS, write_heads
from infra.lab.training.background import CREDIT
from infra.lab.training.clips import FOLDS, Clip, read_clips
from infra.lab.training.embeddings import embed
from infra.models import manifests
from infra.teaching import heads
from infra.teaching.heads import EmbeddedWindows
from infra.teaching.operating_points import Bools, Doubles, lowest_point
from streams.models.manifest import Manifest
from streams.models.own_sounds import POINT
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine

#: Tag, label of its recordings, and its class.
LEARNT: Final = (
    ("Rain", "rain", "Rain"),
    ("Fire_crackle", "crackling_fire", "Fire"),
    ("Helicopter", "helicopter", "Helicopter"),
    ("Chainsaw", "chainsaw", "Chainsaw"),
    ("Sea_waves", "sea_waves", "Ocean"),
)
#: Weight of the class's row in a head.
SHARE: Final = 0.5
#: The point of a tag is set for this many false events a minute in all other material.
FALSE_PER_MINUTE: Final = 0.05
#: Negatives are every second window of a recording, up to this many.
STRIDE: Final = 2
MOST: Final = 6


class EmbeddedClips(msgspec.Struct, frozen=True):
    """Recordings with the embeddings of their windows."""

    clips: tuple[Clip, ...]
    windows: tuple[EmbeddedWindows, ...]

    def select(self, which: Bools) -> list[EmbeddedWindows]:
        """Return the recordings selected by `which`, bool[recordings]."""
        return [self.windows[number] for number in np.flatnonzero(which).tolist()]


def blend_head(material: EmbeddedClips, label: str, allowed: Bools, learnt: Bools, class_head: Floats) -> Floats:
    """Return a head, float32[dimension + 1], learnt from some recordings.

    Args:
        label: Label of recordings with the sound.
        allowed: Recordings in which reporting the tag is no fault, bool[recordings].
        learnt: Recordings to learn from, bool[recordings].
        class_head: The class's row in the graph's last layer, float32[dimension + 1].
    """
    has = np.array([clip.label == label for clip in material.clips])
    others = [one.embeddings[::STRIDE][:MOST] for one in material.select(learnt & ~allowed)]
    negatives = np.concatenate(others)
    head = heads.learn_head(
        material.select(learnt & has), negatives, np.ones(len(negatives)), heads.feature_space(negatives)
    )
    return head + np.float32(SHARE) * class_head


def held_out_point(material: EmbeddedClips, label: str, allowed: Bools, class_head: Floats) -> float:
    """Return the logit from which the tag is reported, set on held-out folds of the recordings."""
    folds = np.array([clip.fold for clip in material.clips])
    logits: list[Doubles] = [np.empty(0)] * len(material.clips)
    for fold in FOLDS:
        head = blend_head(material, label, allowed, folds != fold, class_head)
        for number in np.flatnonzero(folds == fold).tolist():
            logits[number] = heads.logits(head, material.windows[number].embeddings)
    recording = np.repeat(np.arange(len(logits)), [len(one) for one in logits])
    most = FALSE_PER_MINUTE * len(recording) / 120
    return lowest_point(np.concatenate(logits), allowed[recording], recording, most)


def class_row(graph: Path, index: int) -> Floats:
    """Return the row of a class in the last layer of the converted graph: float32[dimension + 1], the bias last."""
    import onnx
    from onnx import numpy_helper

    weights_by_name = {one.name: numpy_helper.to_array(one) for one in onnx.load(graph).graph.initializer}
    weights = (
        weights_by_name["dense_int8"][index]
        * np.broadcast_to(weights_by_name["dense_scale"], (len(weights_by_name["dense_bias"]), 1))[index]
    )
    return np.append(weights, weights_by_name["dense_bias"][index]).astype(np.float32)


def learn_heads(manifest: Manifest, graph: Path, material: EmbeddedClips) -> tuple[Manifest, Floats]:
    """Return the model's manifest with heads for the tags of `LEARNT`, and the heads, float32[heads, dimension + 1].

    `write` fills in the SHA-256 of the heads.
    """
    clips = material.clips
    rows, tags = [], {tag.name: tag for tag in manifest.tags}
    for row, (name, label, of_class) in enumerate(LEARNT):
        allowed = np.array([name in (*LABELS[clip.label].true, *LABELS[clip.label].tolerated) for clip in clips])
        class_head = class_row(graph, manifest.classes.index(of_class))
        head = blend_head(material, label, allowed, np.ones(len(clips), np.bool_), class_head)
        head[-1] -= held_out_point(material, label, allowed, class_head)
        rows.append(head)
        count = sum(clip.label == label for clip in clips)
        tags[name] = msgspec.structs.replace(tags[name], classes=(), head=row, point=POINT, clips=count)
    return msgspec.structs.replace(manifest, tags=tuple(tags.values()), figures={}, evaluation=None), np.stack(rows)


def write(base: Path, manifest: Manifest, rows: Floats, notice: str, out: Path) -> Manifest:
    """Write the model in `base` with other tags and heads into `out` and return its manifest."""
    shutil.copytree(base, out, dirs_exist_ok=True)
    changed = msgspec.structs.replace(manifest, heads=write_heads(out / HEADS, rows))
    manifests.write(out, changed)
    (out / "ATTRIBUTION").write_text(notice, encoding="utf-8")
    return changed


def held_out_judges(base: Path, manifest: Manifest, material: EmbeddedClips, data: Path) -> list[OnnxSoundEngine]:
    """Return the model twice, each with heads learnt on the other half of the recordings."""
    judges = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, half in enumerate(report.halves(data)):
            test_half = {recording.audio for part in half for recording in part}
            training_half = [index for index, clip in enumerate(material.clips) if clip.path not in test_half]
            rest = EmbeddedClips(
                tuple(material.clips[i] for i in training_half), tuple(material.windows[i] for i in training_half)
            )
            out = Path(scratch) / str(number)
            write(base, *learn_heads(manifest, base / manifest.graph.file, rest), "", out)
            judges.append(OnnxSoundEngine(out))
    return judges


def embed_clips(engine: OnnxSoundEngine, data: Path) -> EmbeddedClips:
    """Embed all recordings of a data directory.

    Raises:
        EngineError: A table of recordings is missing.
    """
    clips = read_clips(data)
    return EmbeddedClips(clips, tuple(embed(engine, clip.path) for clip in clips))


def main() -> None:
    options = parser(__doc__, "--data", "--out").parse_args()
    base = models.directory(models.YAMNET)
    engine = OnnxSoundEngine(base)
    material = embed_clips(engine, options.data)
    manifest, rows = learn_heads(engine.manifest, base / engine.manifest.graph.file, material)
    judges = held_out_judges(base, engine.manifest, material, options.data)
    figures = report.held_out_figures(judges, options.data)
    manifest = msgspec.structs.replace(manifest, figures=figures | {"window_ms_ratio": 1.0})
    final = write(base, manifest, rows, attribution.notice(material.clips, CREDIT), options.out)
    print(f"{final.model_id}: {len(rows)} heads, {options.out}")


if __name__ == "__main__":
    run(main)
