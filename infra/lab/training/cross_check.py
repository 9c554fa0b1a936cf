"""Operating points and figures from scores of held-out recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import onnxruntime

from infra.lab.converters.front_end import FRONT_END
from infra.lab.evaluation.metrics import Truth, naming_accuracy
from infra.lab.evaluation.metrics import figures as detection_figures
from infra.lab.evaluation.sound import SILENCE_DB
from infra.lab.training.clips import LABELS, RATE, Clip
from infra.lab.training.material import group
from infra.lab.training.patches import HOP, window_grid
from infra.teaching.operating_points import Bools, Indices
from streams.models.protocol import Floats

SPEECH: Final = LABELS.index("speech")
#: Allowed share of windows, by kind of material, with a false report at the tag's point.
RATES: Final = {"known": 0.005, "other": 0.005, "speech": 0.0002}
#: Points stay within these limits, so that sensitivity can move them both ways.
LIMITS: Final = (0.05, 0.95)


class HeldOutScores(msgspec.Struct, frozen=True):
    """Windows of recordings, 1 s every 0.5 s, grouped by recording."""

    #: float32[n, classes], by the net that did not learn from the recording.
    scores: Floats
    #: Number of the recording, its fold and its class (-1 for none): intp[n] each; its group: str[n].
    recording: Indices
    fold: Indices
    label: Indices
    group: npt.NDArray[np.str_]
    audible: Bools

    def select(self, chosen: Bools) -> HeldOutScores:
        """Return the windows selected by `chosen`, bool[n]."""
        return HeldOutScores(**{name: getattr(self, name)[chosen] for name in self.__struct_fields__})


def held_out_scores(clips: Sequence[Clip], nets: Mapping[int, bytes]) -> HeldOutScores:
    """Score each recording with the net (an ONNX file) trained without its fold."""
    sessions = {
        fold: onnxruntime.InferenceSession(net, providers=["CPUExecutionProvider"]) for fold, net in nets.items()
    }
    scores, windows, audible = [], [], []
    for number, clip in enumerate(clips):
        if clip.fold in sessions:
            samples = clip.samples()
            patches = window_grid(samples)
            scores.append(sessions[clip.fold].run(["scores"], {"log_mel": patches})[0])
            pieces = (samples[at * HOP : at * HOP + FRONT_END.samples] for at in range(len(patches)))
            audible += [float(np.mean(piece**2)) >= 10.0 ** (SILENCE_DB / 10.0) for piece in pieces]
            windows += [(number, clip.fold, -1 if clip.known is None else clip.known, group(clip))] * len(patches)
    recording, fold, label, groups = (np.array(column) for column in zip(*windows, strict=True))
    return HeldOutScores(np.concatenate(scores), recording, fold, label, groups, np.array(audible))


def operating_points(of: HeldOutScores) -> list[float]:
    """Return the operating point of each class: the lowest that meets all of `RATES`."""
    return [
        max(
            operating_point(of.scores[(of.group == kind) & (of.label != index), index], rate)
            for kind, rate in RATES.items()
        )
        for index in range(len(LABELS))
    ]


def operating_point(scores: Floats, rate: float) -> float:
    """Return the lowest score that reports at most a share `rate` of float32[n] negative scores.

    It lies half-way between two scores, so that rounding does not matter, and within `LIMITS`.
    """
    falling = np.append(np.sort(scores.astype(np.float64))[::-1], 0.0)
    allowed = int(rate * len(scores))
    above = falling[allowed - 1] if allowed else min(1.0, falling[0] + 0.02)
    return float(np.clip((above + falling[allowed]) / 2, *LIMITS))


def figures(of: HeldOutScores) -> dict[str, float]:
    """Return the ten-class accuracy of each fold and of all, and recall and false events by group.

    Each fold is evaluated at the points of the other folds. On speech the tag Speech is right, so false events are
    those of the ten sounds.
    """
    shares = {
        f"ten_class_clip_accuracy_fold_{fold}": _ten_class_accuracy(of, of.fold == fold)
        for fold in np.unique(of.fold[of.group == "known"])
    }
    by_name = {"ten_class_clip_accuracy": _ten_class_accuracy(of, np.ones(len(of.fold), bool)), **shares}
    on = np.zeros(of.scores.shape, bool)
    for fold in np.unique(of.fold):
        on[of.fold == fold] = of.scores[of.fold == fold] >= operating_points(of.select(of.fold != fold))
    true = of.label[:, np.newaxis] == np.arange(len(LABELS))
    for kind in RATES:
        inside = of.group == kind
        minutes = float(inside.sum()) * HOP / RATE / 60.0
        truth = Truth(of.recording[inside], true[inside], true[inside], of.audible[inside], minutes)
        values = msgspec.structs.asdict(detection_figures(on[inside], truth))
        by_name |= {f"{kind}_{name}": value for name, value in values.items() if value == value}
    return by_name


def _ten_class_accuracy(of: HeldOutScores, windows: Bools) -> float:
    """Return the share of ten-class clips whose highest mean score is in their class."""
    windows = windows & (of.group == "known")
    sounds = np.delete(np.arange(len(LABELS)), SPEECH)
    _, first = np.unique(of.recording[windows], return_index=True)
    right = np.searchsorted(sounds, of.label[windows][first])
    return naming_accuracy(of.scores[windows][:, sounds].astype(np.float64), of.recording[windows], right)
