"""Figures of detections: cases counted by hand, and slow twins on made-up ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from infra.lab.evaluation import metrics
from infra.lab.evaluation.metrics import Bools, Truth


def bools(*rows: str) -> Bools:
    return np.array([[cell == "x" for cell in row] for row in rows])


def made_up(seed: int) -> tuple[Bools, Truth]:
    """Detections of 3 tags in 5 recordings of 1 to 9 windows."""
    random = np.random.default_rng(seed)
    recording = np.repeat(np.arange(5), random.integers(1, 10, 5))
    shape = (len(recording), 3)
    allowed = random.random(shape) < 0.4
    heard = random.random(len(recording)) < 0.8
    return random.random(shape) < 0.5, Truth(recording, allowed & (random.random(shape) < 0.7), allowed, heard, 2.0)


def test_counted_by_hand() -> None:
    on = bools("x.", "xx", ".x", "..", ".x", ".x", "..", "x.")
    true = bools("..", "x.", "x.", "x.", "..", "..", "x.", "x.")
    allowed = true | bools("..", ".x", ".x", "..", "..", "..", "..", "..")
    recording = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    heard = np.array([True, True, True, False, True, True, True, True])
    figures = metrics.figures(on, Truth(recording, true, allowed, heard, minutes=0.5))
    assert figures.clip_recall == 1.0  # recordings 0 and 2 have a true tag; 1 has none
    assert figures.window_recall == 2 / 4  # windows 1, 2, 6 and 7; 3 is too quiet to count
    assert figures.false_events_per_minute == 2 / 0.5  # window 0, and windows 4 and 5 together
    assert figures.false_windows == 3 / 8


def test_nothing_to_count_is_no_number() -> None:
    nothing = np.zeros((2, 1), np.bool_)
    figures = metrics.figures(nothing, Truth(np.array([0, 0]), nothing, nothing, np.array([True, True]), 1.0))
    assert math.isnan(figures.clip_recall)
    assert math.isnan(figures.window_recall)
    assert figures.false_windows == figures.false_events_per_minute == 0


@pytest.mark.parametrize("seed", range(20))
def test_figures_equal_those_of_loops(seed: int) -> None:
    on, truth = made_up(seed)
    recordings = [np.flatnonzero(truth.recording == number) for number in range(5)]
    have = [windows for windows in recordings if truth.true[windows].any()]
    found = [windows for windows in have if (on & truth.true)[windows].any()]
    events = sum(
        on[w, tag]
        and not truth.allowed[w, tag]
        and not (w > windows[0] and on[w - 1, tag] and not truth.allowed[w - 1, tag])
        for windows in recordings
        for tag in range(3)
        for w in windows
    )
    figures = metrics.figures(on, truth)
    assert figures.clip_recall == pytest.approx(len(found) / len(have))
    assert figures.false_events_per_minute == pytest.approx(events / 2.0)
    assert metrics.false_events(on, truth).sum() == events
    counts = [
        (sum((on & truth.true)[w, tag].any() for w in recordings), sum(truth.true[w, tag].any() for w in recordings))
        for tag in range(3)
    ]
    assert list(zip(*metrics.count_clips_found(on, truth), strict=True)) == counts


@pytest.mark.parametrize("seed", range(20))
def test_false_events_from_any_point(seed: int) -> None:
    _, truth = made_up(seed)
    scores = np.random.default_rng(seed).random(len(truth.recording)).round(1)
    points = np.array([0.0, 0.3, 0.5, 0.55, 1.0, 1.1])
    counted = [metrics.false_events(np.repeat((scores >= point)[:, None], 3, axis=1), truth)[1] for point in points]
    assert metrics.false_events_from(scores, truth.allowed[:, 1], truth.recording, points).tolist() == counted


def test_median_of_three() -> None:
    on = bools(".", "x", ".", "x", "x", ".", "x", "x", ".", "x")
    recording = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 3])
    #         lonely x goes, gap fills; ends count twice; neighbours in other recordings do not count
    assert (
        metrics.median_of_three(on, recording).tolist()
        == bools(".", ".", "x", "x", "x", ".", "x", "x", ".", "x").tolist()
    )


@pytest.mark.parametrize("seed", range(10))
def test_median_of_detections_is_that_of_scores(seed: int) -> None:
    _, truth = made_up(seed)
    scores = np.random.default_rng(seed).random((len(truth.recording), 3))
    expected = np.zeros(scores.shape, np.bool_)
    for number in range(5):
        own = scores[truth.recording == number]
        padded = np.concatenate([own[:1], own, own[-1:]])
        medians = np.median([padded[:-2], padded[1:-1], padded[2:]], axis=0)
        expected[truth.recording == number] = medians >= 0.5
    assert (metrics.median_of_three(scores >= 0.5, truth.recording) == expected).all()


def test_naming_goes_by_the_mean() -> None:
    scores = np.array([[0.9, 0.1], [0.0, 0.6], [0.0, 0.6], [0.2, 0.3]])
    assert metrics.naming_accuracy(scores, np.array([0, 0, 0, 1]), np.array([1, 1])) == 1.0
    assert metrics.naming_accuracy(scores, np.array([0, 1, 1, 2]), np.array([1, 1, 0])) == pytest.approx(1 / 3)


def test_average_precision() -> None:
    positive = np.array([True, False, True, False])
    assert metrics.average_precision(np.array([4.0, 3.0, 2.0, 1.0]), positive) == pytest.approx((1 + 2 / 3) / 2)
    assert metrics.average_precision(np.array([1.0, 1.0, 1.0, 1.0]), positive) == 0.5
    assert math.isnan(metrics.average_precision(np.array([1.0]), np.array([False])))
