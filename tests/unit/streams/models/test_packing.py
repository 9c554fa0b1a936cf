"""Packing: the formula of the stored byte, and thresholds that lose nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from streams.models.packing import pack
from tests import naive
from topics.errors import EngineError
from topics.scores import STEP, probability, threshold

scores = st.floats(0, 1, width=32)
points = st.floats(0.01, 0.99)


def one(score: float, point: float) -> int:
    return pack(np.array([[score]], np.float32), [point])[0]


@given(rows=st.lists(st.tuples(scores, points), min_size=1, max_size=20))
def test_equals_the_formula(rows: list[tuple[float, float]]) -> None:
    got = pack(np.array([[score for score, _ in rows]], np.float32), [point for _, point in rows])
    for stored, (score, point) in zip(got, rows, strict=True):
        # At the very edge of a step the last bit of a logarithm may decide.
        assert abs(stored - naive.stored(score, point)) <= (0 if off_edge(score, point) else 1)


def off_edge(score: float, point: float) -> bool:
    inside = min(max(score, 1e-12), 1 - 1e-12)
    steps = (math.log(inside / (1 - inside)) - math.log(point / (1 - point))) / STEP
    return abs(steps - round(steps)) > 1e-9


@given(score=scores, point=points, nudge=st.integers(-3, 3))
@example(score=0.5, point=0.5, nudge=0)
@example(score=0.0, point=0.01, nudge=0)
@example(score=1.0, point=0.99, nudge=0)
def test_reported_exactly_from_the_point_on(score: float, point: float, nudge: int) -> None:
    # Scores a few floats beside the point, or the drawn one.
    for value in (score, float(np.float32(point) + nudge * np.spacing(np.float32(point)))):
        reported = one(value, point) >= threshold(0)
        assert reported == (value >= point)
        assert reported == (probability(one(value, point)) >= 0.5)


@given(score=scores, point=points, sensitivity=st.sampled_from([-2, -1, 1, 2]))
def test_a_step_of_sensitivity_is_seven_tenths_of_a_logit(score: float, point: float, sensitivity: int) -> None:
    assume(0 < score < 1)
    margin = math.log(score / (1 - score)) - math.log(point / (1 - point)) - 0.7 * sensitivity
    assume(abs(margin) > 1e-9)
    assert (one(score, point) >= threshold(sensitivity)) == (margin > 0)


@given(first=scores, second=scores, point=points)
def test_order_is_kept(first: float, second: float, point: float) -> None:
    assert (one(first, point) <= one(second, point)) == (first <= second) or one(first, point) == one(second, point)


def test_windows_follow_one_another() -> None:
    rows = np.array([[0.1, 0.9, 0.5], [0.9, 0.1, 0.5]], np.float32)
    packed = pack(rows, [0.5, 0.5, 0.5])
    assert packed == pack(rows[:1], [0.5] * 3) + pack(rows[1:], [0.5] * 3)
    assert (packed[0], packed[1], packed[2]) == (packed[4], packed[3], packed[5])


def test_not_a_number() -> None:
    with pytest.raises(EngineError, match="not a number"):
        pack(np.array([[0.5, np.nan]], np.float32), [0.5, 0.5])
