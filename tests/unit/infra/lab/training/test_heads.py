"""Heads on embeddings: the regression is the minimum, and recordings are learnt from where the sound is."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.training import heads
from infra.lab.training.embeddings import EmbeddedWindows
from infra.lab.training.heads import RIDGE, Doubles
from streams.models.protocol import Floats

DIMENSION = 12
SOUND = np.eye(DIMENSION, dtype=np.float32)[0] * 6
RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own numbers, whichever ran before it."""
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(7))


def windows(count: int) -> Floats:
    return np.abs(RANDOM.normal(size=(count, DIMENSION))).astype(np.float32)


def recording(heard_at: int, length: int = 6) -> EmbeddedWindows:
    """EmbeddedWindows of which one has the sound."""
    embeddings = windows(length)
    embeddings[heard_at] += SOUND
    return EmbeddedWindows(embeddings, np.full(length, -20, np.float32))


def loss(head: Doubles, rows: Doubles, wanted: Doubles, weights: Doubles) -> float:
    """As the definition has it, row by row."""
    total = RIDGE / 2 * sum(value**2 for value in head[:-1])
    for row, yes, weight in zip(rows, wanted, weights, strict=True):
        found = 1 / (1 + np.exp(-(sum(row * head[:-1]) + head[-1])))
        total -= weight * np.log(found if yes else 1 - found)
    return float(total)


@pytest.mark.parametrize("apart", [0.0, 2.0, 50.0])
def test_the_regression_is_the_minimum(apart: float) -> None:
    rows = RANDOM.normal(size=(40, 3))
    wanted = np.repeat([1.0, 0.0], 20)
    rows[:20, 0] += apart
    weights = RANDOM.uniform(0.1, 5, 40)
    head = heads.regress(rows, wanted, weights)
    least = loss(head, rows, wanted, weights)
    for index in range(4):
        for step in (-0.05, 0.05):
            moved = head.copy()
            moved[index] += step
            assert loss(moved, rows, wanted, weights) > least


def test_space_has_damped_unit_variance() -> None:
    material = windows(500) * np.linspace(5, 0.1, DIMENSION, dtype=np.float32)
    features = heads.feature_space(material).features(material)
    assert np.allclose(features.mean(axis=0), 0, atol=1e-4)
    deviations = features.std(axis=0)
    assert deviations[0] == pytest.approx(1 / (1 + heads.DAMPING), rel=1e-3)
    assert (np.diff(deviations) <= 1e-6).all()
    assert np.allclose(np.corrcoef(features.T) - np.eye(DIMENSION), 0, atol=1e-3)


def test_a_head_finds_the_windows_of_the_sound() -> None:
    negatives = windows(300)
    head = heads.learn_head(
        [recording(at % 6) for at in range(10)], negatives, np.ones(300), heads.feature_space(negatives)
    )
    assert head.dtype == np.float32
    assert head.shape == (DIMENSION + 1,)
    for at in range(6):
        logits = heads.logits(head, recording(at).embeddings)
        assert logits[at] > np.delete(logits, at).max() + 4


def test_quiet_windows_are_not_the_sound() -> None:
    """The same sound, too soft to be it: then the loud windows are what is learnt."""
    negatives = windows(300)
    other = np.eye(DIMENSION, dtype=np.float32)[1] * 6
    positives = []
    for _ in range(10):
        both = recording(0)
        both.embeddings[3] += other
        levels = np.where(np.arange(6) == 3, -20, -70).astype(np.float32)
        positives.append(EmbeddedWindows(both.embeddings, levels))
    head = heads.learn_head(positives, negatives, np.ones(300), heads.feature_space(negatives))
    assert heads.logits(head, windows(50) + other).min() > heads.logits(head, windows(50) + SOUND).max()


def test_long_recordings_count_no_more_than_short_ones() -> None:
    negatives = windows(300)
    within = heads.feature_space(negatives)
    one, other = recording(0, 1), recording(0, 1)
    long = EmbeddedWindows(np.repeat(other.embeddings, 40, axis=0), np.full(40, -20, np.float32))
    short, uneven = (heads.learn_head(pair, negatives, np.ones(300), within) for pair in ([one, other], [one, long]))
    assert np.allclose(short, uneven, atol=1e-4)


def test_heavier_negatives_are_avoided_more() -> None:
    negatives = windows(300)
    negatives[:30] += SOUND + np.eye(DIMENSION, dtype=np.float32)[1] * 6
    within = heads.feature_space(negatives)
    weights = np.ones(300)
    lightly = heads.learn_head([recording(0)] * 10, negatives, weights, within)
    weights[:30] = 100
    heavily = heads.learn_head([recording(0)] * 10, negatives, weights, within)
    alike = negatives[:30]
    assert heads.logits(heavily, alike).mean() < heads.logits(lightly, alike).mean() - 1
