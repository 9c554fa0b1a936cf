"""The training set of sed-mini: log-mel patches of recordings and synthetic sounds, labels and YAMNet's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import onnxruntime

from infra.lab.training.clips import FOLDS, LABELS, RATE, Clip
from infra.lab.training.patches import crops
from infra.lab.training.synthetic import synthetic
from infra.teaching.operating_points import Bools, Doubles
from streams.models.protocol import Floats

Halves = npt.NDArray[np.float16]

#: Number of crops of a recording, by group.
CROPS: Final = {"known": 32, "other": 24, "speech": 16, "synthetic": 4}
#: Share of each group in the drawn patches. All classes are drawn equally often.
SHARES: Final = {"known": 0.5, "other": 0.28, "speech": 0.12, "synthetic": 0.1}
#: Number of synthetic sounds, spread over the folds, and their length in seconds.
SYNTHETIC: Final = 600
SYNTHETIC_SECONDS: Final = 2


class Material(msgspec.Struct, frozen=True):
    """Training patches, row by row."""

    #: float16[n, 96, 64].
    patches: Halves
    #: Class scores wanted, float32[n, classes].
    labels: Floats
    #: YAMNet's outputs for the patch: float16[n, 521] scores, float16[n, 1024] embedding.
    scores: Halves
    embeddings: Halves
    #: Group of the row (index into `SHARES`), and its fold.
    groups: npt.NDArray[np.int8]
    folds: npt.NDArray[np.int8]

    def rows(self, chosen: Bools) -> Material:
        return Material(**{name: getattr(self, name)[chosen] for name in self.__struct_fields__})


def group(clip: Clip) -> str:
    """Return a recording's group in `SHARES`."""
    if clip.label == "speech":
        return "speech"
    return "other" if clip.known is None else "known"


def prepare(clips: Sequence[Clip], teacher: onnxruntime.InferenceSession, seed: int) -> Material:
    """Return the material of all folds.

    Each recording has its own random numbers, so its crops do not depend on the other recordings.
    """
    patches, labels, groups, folds = [], [], [], []
    for number, clip in enumerate(clips):
        count = CROPS[group(clip)]
        patches.append(crops(clip.samples(), count, np.random.default_rng((seed, number))).astype(np.float16))
        label = np.zeros(len(LABELS), np.float32)
        if clip.known is not None:
            label[clip.known] = 1.0
        labels += [label] * count
        groups += [list(SHARES).index(group(clip))] * count
        folds += [clip.fold] * count
    count = CROPS["synthetic"]
    for number in range(SYNTHETIC):
        random = np.random.default_rng((seed, len(clips) + number))
        sound = synthetic(number, random, SYNTHETIC_SECONDS * RATE)
        patches.append(crops(sound, count, random).astype(np.float16))
        labels += [np.zeros(len(LABELS), np.float32)] * count
        groups += [list(SHARES).index("synthetic")] * count
        folds += [FOLDS[number // 6 % len(FOLDS)]] * count
    stacked = np.concatenate(patches)
    scores, embeddings = _teacher_outputs(teacher, stacked)
    return Material(
        patches=stacked,
        labels=np.stack(labels),
        scores=scores,
        embeddings=embeddings,
        groups=np.array(groups, np.int8),
        folds=np.array(folds, np.int8),
    )


def draw_chances(material: Material) -> Doubles:
    """Return the chance of drawing each row, float64[n]: shares by group, and equal by class in the known group."""
    chances = np.zeros(len(material.groups))
    kinds = np.where(material.labels.any(axis=1), material.labels.argmax(axis=1), -1)
    for index, share in enumerate(SHARES.values()):
        inside = material.groups == index
        present = np.unique(kinds[inside])
        for kind in present:
            rows = inside & (kinds == kind)
            chances[rows] = share / len(present) / rows.sum()
    return chances / chances.sum()


def _teacher_outputs(teacher: onnxruntime.InferenceSession, patches: Halves) -> tuple[Halves, Halves]:
    scores, embeddings = [], []
    for at in range(0, len(patches), 32):
        batch = {"log_mel": patches[at : at + 32].astype(np.float32)}
        outputs = teacher.run(["scores", "embedding"], batch)
        scores.append(outputs[0].astype(np.float16))
        embeddings.append(outputs[1].astype(np.float16))
    return np.concatenate(scores), np.concatenate(embeddings)
