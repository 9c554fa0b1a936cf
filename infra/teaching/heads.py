"""Heads: logistic regressions on an embedding, learnt from a few recordings of a sound against many others.

A recording is known to have the sound, but not where. So a head is learnt twice: from the loud windows, then from the
half of the windows that the first head finds likeliest. All recordings have the same weight whatever their length, and
so do the two sides. A few recordings cannot determine a thousand dimensions. So the features are the leading principal
components of the other material, damped where it hardly varies, and the regression has a ridge penalty.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.teaching.operating_points import Bools, Doubles
from streams.models.protocol import Floats

COMPONENTS: Final = 128
#: Added to the standard deviation of each component, as a share of the first one's.
DAMPING: Final = 0.5
RIDGE: Final = 1.0
#: Total weight of each side, positives and negatives.
SIDE: Final = 100.0
#: Windows down to this many dB below the loudest may be the sound: for the first head, and for the second.
LOUD_DB: Final = 25.0
AUDIBLE_DB: Final = 40.0
#: Share of the audible windows taken as the sound for the second head.
LIKELY: Final = 0.5
STEPS: Final = 50


class EmbeddedWindows(msgspec.Struct, frozen=True):
    """The windows of a recording, or its contexts."""

    #: float32[windows, dimension].
    embeddings: Floats
    #: Mean power in dB of full scale: float32[windows]; all equal if unknown.
    levels: Floats


class FeatureSpace(msgspec.Struct, frozen=True):
    """Features of an embedding e: (e - mean) @ axes."""

    #: float64[dimension], float64[dimension, components].
    mean: Doubles
    axes: Doubles

    def features(self, embeddings: Floats) -> Doubles:
        """Return float64[n, components] of float32[n, dimension]."""
        return (embeddings - self.mean) @ self.axes


def feature_space(material: Floats) -> FeatureSpace:
    """Return the leading principal components of float32[n, dimension], scaled to about the same variance."""
    mean = material.mean(axis=0, dtype=np.float64)
    centred = material - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / len(material))
    deviations = np.sqrt(np.maximum(variances[::-1][:COMPONENTS], 0.0))
    return FeatureSpace(mean, axes[:, ::-1][:, :COMPONENTS] / (deviations + DAMPING * deviations[0]))


def learn_head(
    positives: Sequence[EmbeddedWindows], negatives: Floats, weights: Doubles, within: FeatureSpace
) -> Floats:
    """Learn a head, float32[dimension + 1], from recordings of a sound and from windows without it.

    Args:
        negatives: float32[windows, dimension].
        weights: Relative weight of each negative window, float64[windows].
        within: The features of the regression.
    """
    others = within.features(negatives)
    features = [within.features(recording.embeddings) for recording in positives]
    chosen = [recording.levels >= recording.levels.max() - LOUD_DB for recording in positives]
    head = regress(*_regression_rows(features, chosen, others, weights))
    chosen = [
        _likeliest(rows @ head[:-1], recording.levels) for rows, recording in zip(features, positives, strict=True)
    ]
    head = regress(*_regression_rows(features, chosen, others, weights))
    direction = within.axes @ head[:-1]
    return np.append(direction, head[-1] - within.mean @ direction).astype(np.float32)


def _likeliest(logits: Doubles, levels: Floats) -> Bools:
    """Return the likeliest half of the audible windows: bool[windows]."""
    audible = np.flatnonzero(levels >= levels.max() - AUDIBLE_DB)
    order = audible[np.argsort(-logits[audible], kind="stable")]
    chosen = np.zeros(len(levels), np.bool_)
    chosen[order[: int(np.ceil(LIKELY * len(order)))]] = True
    return chosen


def _regression_rows(
    features: Sequence[Doubles], chosen: Sequence[Bools], others: Doubles, weights: Doubles
) -> tuple[Doubles, Doubles, Doubles]:
    """Return (features, targets, weights) of all windows for `regress`."""
    positive_rows = [rows[some] for rows, some in zip(features, chosen, strict=True)]
    shares = [np.full(len(rows), 1.0 / len(positive_rows) / len(rows)) for rows in positive_rows]
    return (
        np.concatenate((*positive_rows, others)),
        np.concatenate((np.ones(sum(map(len, positive_rows))), np.zeros(len(others)))),
        SIDE * np.concatenate((*shares, weights / weights.sum())),
    )


def regress(rows: Doubles, targets: Doubles, weights: Doubles) -> Doubles:
    """Return the ridged logistic regression, float64[components + 1] with the bias last, by Newton's method.

    It minimises the sum of weighted cross-entropies plus RIDGE / 2 times the squares of all weights except the bias.

    Args:
        rows: float64[n, components].
        targets: 0 or 1: float64[n].
        weights: float64[n].
    """
    rows = np.column_stack((rows, np.ones(len(rows))))
    ridge = np.append(np.full(rows.shape[1] - 1, RIDGE), 1e-6)

    def loss(head: Doubles) -> float:
        logits = rows @ head
        return float(weights @ (np.logaddexp(0.0, logits) - targets * logits) + ridge @ head**2 / 2)

    head = np.zeros(rows.shape[1])
    now = loss(head)
    for _ in range(STEPS):
        probabilities = 1.0 / (1.0 + np.exp(-(rows @ head)))
        gradient = rows.T @ (weights * (probabilities - targets)) + ridge * head
        curvature = (rows * (weights * probabilities * (1.0 - probabilities))[:, None]).T @ rows + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        # A whole Newton step may overshoot where the loss is flat.
        while (after := loss(head - step)) > now and np.abs(step).max() > 1e-9:
            step /= 2.0
        head, before, now = head - step, now, after
        if before - now < 1e-7 * before:
            break
    return head


def logits(head: Floats, embeddings: Floats) -> Doubles:
    """Return the logits of a head's scores, float64[n], for float32[n, dimension]."""
    margins: Doubles = (embeddings @ head[:-1] + head[-1]).astype(np.float64)
    return margins
