"""Compares two ways of scoring the same windows, tag by tag, at the same number of false events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation.metrics import Doubles, Truth, average_precision, count_clips_found, false_events_from

#: False events a minute that each tag may have.
BUDGETS: Final = (0.02, 0.05, 0.2)


class Quality(msgspec.Struct, frozen=True):
    """How well the scores of a tag separate its recordings from others."""

    #: Of the highest score of each recording.
    average_precision: float
    #: Share of the tag's recordings, and of its windows with something to hear, found at each budget.
    clip_recall: tuple[float, ...]
    window_recall: tuple[float, ...]


class Gain(msgspec.Struct, frozen=True):
    """A tag before and after."""

    tag: str
    #: Recordings that have the tag.
    clips: int
    before: Quality
    after: Quality


def compare(
    before: Doubles, after: Doubles, truth: Truth, tags: Sequence[str], budgets: Sequence[float] = BUDGETS
) -> tuple[Gain, ...]:
    """Return the quality before and after of each tag that some recording has.

    Points are set on the windows that are counted, on both sides alike, so only the order of the scores matters.
    The scores must come from models that did not see these recordings: pass scores of held-out folds, each fold's
    recordings scored by the model that was made without them.

    Args:
        before, after: float64[windows, tags], any increasing function of the probability.
        truth: Of the same windows and tags.
        tags: Names of the columns.
        budgets: False events a minute of each tag at which recall is taken.
    """
    _, clips = count_clips_found(truth.true, truth)
    return tuple(
        Gain(tag, int(clips[column]), *(_quality(scores, truth, column, budgets) for scores in (before, after)))
        for column, tag in enumerate(tags)
        if clips[column]
    )


def _quality(scores: Doubles, truth: Truth, column: int, budgets: Sequence[float]) -> Quality:
    levels = scores[:, column].astype(np.float64)
    true, allowed = truth.true[:, column], truth.allowed[:, column]
    _, starts = np.unique(truth.recording, return_index=True)
    has = np.logical_or.reduceat(true, starts)
    counted = has | ~np.logical_or.reduceat(allowed, starts)
    highest = np.maximum.reduceat(np.where(allowed & ~true, -np.inf, levels), starts)
    points = [lowest_point(levels, truth, column, budget) for budget in budgets]
    return Quality(
        average_precision=average_precision(highest[counted], has[counted]),
        clip_recall=tuple(
            float((np.maximum.reduceat(np.where(true, levels, -np.inf), starts)[has] >= point).mean())
            for point in points
        ),
        window_recall=tuple(float((levels[true & truth.audible] >= point).mean()) for point in points),
    )


def lowest_point(scores: Doubles, truth: Truth, column: int, budget: float) -> float:
    """Return the lowest score from which a tag can be reported with at most `budget` false events a minute.

    Args:
        scores: Of the tag: float64[windows].
        truth: Of the same windows.
        column: Of the tag in `truth`.
        budget: False events a minute, also from every higher score on.
    """
    candidates = np.unique(scores)
    counts = false_events_from(scores, truth.allowed[:, column], truth.recording, candidates)
    too_many = np.flatnonzero(counts > budget * truth.minutes)
    if not too_many.size:
        return float(candidates[0])
    return float(candidates[too_many[-1] + 1]) if too_many[-1] + 1 < len(candidates) else float("inf")
