"""Comparing scores: only their order counts, and at equally many false events."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.evaluation.comparison import compare, lowest_point
from infra.lab.evaluation.metrics import Truth, false_events_from


def clips(seed: int = 0) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], Truth]:
    """Scores of one tag in 20 clips of 4 windows, of which 8 have it; they tell little."""
    random = np.random.default_rng(seed)
    recording = np.repeat(np.arange(20), 4)
    true = (recording < 8)[:, None]
    scores = random.random((80, 1)) + 0.2 * true
    return scores, Truth(recording, true, true, np.ones(80, np.bool_), minutes=2.0)


def test_the_same_order_is_no_gain() -> None:
    scores, truth = clips()
    (gain,) = compare(scores, np.exp(3 * scores), truth, ["Dog"])
    assert gain.before == gain.after
    assert (gain.tag, gain.clips) == ("Dog", 8)


def test_better_scores_gain() -> None:
    scores, truth = clips()
    (gain,) = compare(scores, scores + truth.true, truth, ["Dog"], budgets=(0.0, 4.0))
    assert gain.after.average_precision == 1.0 > gain.before.average_precision
    assert gain.after.clip_recall == gain.after.window_recall == (1.0, 1.0)
    assert gain.before.window_recall[0] < gain.before.window_recall[1] < 1.0


def test_a_tag_that_no_recording_has_is_left_out() -> None:
    scores, truth = clips()
    both = Truth(
        truth.recording, np.c_[truth.true, 0 * truth.true] > 0, np.c_[truth.true, truth.true] > 0, truth.audible, 2.0
    )
    assert [gain.tag for gain in compare(np.c_[scores, scores], np.c_[scores, scores], both, ["Dog", "Cat"])] == ["Dog"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget", [0.0, 0.5, 3.0, 100.0])
def test_the_lowest_point_within_a_budget(seed: int, budget: float) -> None:
    scores, truth = clips(seed)
    point = lowest_point(scores[:, 0], truth, 0, budget)
    candidates = np.unique(scores)
    counts = false_events_from(scores[:, 0], truth.allowed[:, 0], truth.recording, candidates)
    assert (counts[candidates >= point] <= budget * 2.0).all()
    lower = candidates[candidates < point]
    assert not len(lower) or counts[len(lower) - 1] > budget * 2.0
