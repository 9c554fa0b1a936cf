"""Packs scores into their stored bytes, as defined in `topics.scores`."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats
from topics.errors import EngineError
from topics.scores import STEP, ZERO

#: Scores keep this distance from 0 and 1, where logits are infinite; the stored range ends long before, at 8.96.
EDGE: Final = 1e-12


def pack(scores: Floats, points: Sequence[float]) -> bytes:
    """Pack float32[windows, tags] in 0..1 into a byte per score, window by window, relative to the operating points.

    A byte is at least 128 exactly if the score is at least the operating point, both as float64.

    Raises:
        EngineError: a score is not a number.
    """
    if np.isnan(scores).any():
        raise EngineError("the model gave a score that is not a number")
    exact = scores.astype(np.float64)
    thresholds, logits = _operating_points(tuple(points))
    steps = ZERO + np.floor((_logit(exact) - logits) / STEP)
    # Rounding in the logarithms must not move a score across its operating point.
    steps = np.where(exact >= thresholds, np.maximum(steps, ZERO), np.minimum(steps, ZERO - 1))
    packed: npt.NDArray[np.uint8] = np.minimum(np.maximum(steps, 0), 255).astype(np.uint8)
    return packed.tobytes()


@lru_cache(maxsize=8)
def _operating_points(points: tuple[float, ...]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the points, float64[tags], and their logits."""
    thresholds = np.array(points, np.float64)
    return thresholds, _logit(thresholds)


def _logit(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # Not numpy's clip, which takes longer than everything else for one window.
    inside = np.minimum(np.maximum(scores, EDGE), 1.0 - EDGE)
    return np.log(inside / (1.0 - inside))
