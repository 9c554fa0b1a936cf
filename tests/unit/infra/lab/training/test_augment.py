"""Variations of patches: levels as asked for, powers added, targets that follow, one draw for one seed."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.training import augment
from infra.models.front_end import FRONT_END
from streams.models.protocol import Floats


def patches(level: float, count: int = 40) -> Floats:
    random = np.random.default_rng(int(level))
    return np.log(level * random.random((count, 96, 64), np.float32) + np.float32(FRONT_END.offset))


def vary(seed: int, count: int = 40) -> tuple[Floats, Floats]:
    wanted = np.zeros((count, 2), np.float32)
    wanted[:, 0] = 1.0
    return augment.vary(
        patches(3.0, count),
        wanted,
        patches(2.0, count),
        wanted[:, ::-1],
        patches(1.0, count),
        np.random.default_rng(seed),
    )


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variation at all, to switch one on."""
    monkeypatch.setattr(augment, "GAIN_DB", (0.0, 0.0))
    monkeypatch.setattr(augment, "OTHER", (0.0, (0.0, 20.0)))
    monkeypatch.setattr(augment, "NOISE", (0.0, (5.0, 40.0)))
    monkeypatch.setattr(augment, "COLOUR_DB", 0.0)
    monkeypatch.setattr(augment, "MASK", (0.0, 16, 8))
    return monkeypatch


def test_one_seed_one_result() -> None:
    for first, again in zip(vary(1), vary(1), strict=True):
        np.testing.assert_array_equal(first, again)
    assert not np.array_equal(vary(1)[0], vary(2)[0])


def test_nothing_asked_nothing_done(plain: pytest.MonkeyPatch) -> None:
    varied, targets = vary(1)
    np.testing.assert_allclose(varied, patches(3.0), atol=1e-4)
    np.testing.assert_array_equal(targets, np.tile([1.0, 0.0], (40, 1)))


def test_gain(plain: pytest.MonkeyPatch) -> None:
    plain.setattr(augment, "GAIN_DB", (-20.0, -20.0))
    varied, _ = vary(1)
    np.testing.assert_allclose(augment.magnitudes(varied), augment.magnitudes(patches(3.0)) / 10.0, atol=1e-3)


@pytest.mark.parametrize("below", [3.0, 10.0, 20.0])
def test_another_sound_behind(plain: pytest.MonkeyPatch, below: float) -> None:
    """Its power is added at the level asked for."""
    plain.setattr(augment, "OTHER", (1.0, (below, below)))
    front, mixed = augment.magnitudes(patches(3.0)), augment.magnitudes(vary(1)[0])
    added = (mixed.astype(np.float64) ** 2 - front.astype(np.float64) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(added / (front**2).mean(axis=(1, 2)), 10.0 ** (-below / 10.0), rtol=0.02)


def test_targets_of_what_is_behind_count_less(plain: pytest.MonkeyPatch) -> None:
    plain.setattr(augment, "OTHER", (1.0, (5.0, 20.0)))
    _, targets = vary(1)
    assert (targets[:, 0] == 1.0).all()
    assert 0.0 <= targets[:, 1].min() < 0.2 < 0.6 < targets[:, 1].max() <= 0.75


def test_a_sound_behind_silence_comes_as_it_is(plain: pytest.MonkeyPatch) -> None:
    plain.setattr(augment, "NOISE", (1.0, (0.0, 0.0)))
    silence, nothing = np.full((2, 96, 64), np.log(FRONT_END.offset), np.float32), np.zeros((2, 1), np.float32)
    varied, _ = augment.vary(silence, nothing, silence, nothing, patches(1.0, 2), np.random.default_rng(1))
    np.testing.assert_allclose(varied, patches(1.0, 2), atol=1e-3)


def test_masks(plain: pytest.MonkeyPatch) -> None:
    plain.setattr(augment, "MASK", (1.0, 16, 8))
    changed = np.abs(vary(1)[0] - patches(3.0)) > 1e-3
    frames, bands = changed.mean(axis=2) > 0.9, changed.mean(axis=1) > 0.9
    assert 1 <= frames.sum(axis=1).min() <= frames.sum(axis=1).max() <= 16
    assert 1 <= bands.sum(axis=1).min() <= bands.sum(axis=1).max() <= 8
