"""Stored scores: what is reported and the probability that is shown agree."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import scores

SENSITIVITIES = range(-2, 3)


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_a_tag_is_reported_exactly_when_its_probability_is_a_half_or_more(sensitivity: int) -> None:
    for stored in range(256):
        assert (stored >= scores.threshold(sensitivity)) == (scores.probability(stored, sensitivity) >= 0.5)


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_probabilities_are_inside_and_grow(sensitivity: int) -> None:
    shown = [scores.probability(stored, sensitivity) for stored in range(256)]
    assert all(0 <= p <= 1 for p in shown)
    assert shown == sorted(shown)


def test_positive_sensitivity_reports_less() -> None:
    thresholds = [scores.threshold(sensitivity) for sensitivity in SENSITIVITIES]
    assert thresholds == [108, 118, 128, 138, 148]


@given(st.floats(-9.5, 9.5), st.sampled_from(SENSITIVITIES))
def test_the_threshold_on_stored_values_is_the_one_on_margins(margin: float, sensitivity: int) -> None:
    """m >= 0.7 s exactly when q >= 128 + 10 s, away from rounding of the step itself."""
    steps = margin / scores.STEP
    stored = min(255, max(0, scores.ZERO + math.floor(steps)))
    if abs(steps - round(steps)) > 1e-9:
        assert (stored >= scores.threshold(sensitivity)) == (margin >= 0.7 * sensitivity)


def test_the_probability_is_of_the_middle_of_the_step() -> None:
    assert scores.probability(128) == round(1 / (1 + math.exp(-0.035)), 4) == 0.5087
    assert scores.probability(127) == 0.4913
    assert scores.probability(138, 1) == scores.probability(128)
