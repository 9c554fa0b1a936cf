"""Patches: the service's grid of windows, and crops that hold sound."""

from __future__ import annotations

import numpy as np

from infra.lab.training.patches import active_starts, crops, window_grid
from infra.models import directory
from infra.models.front_end import FRONT_END
from streams.audio import logmel
from streams.models import manifest
from tests.unit.infra.lab.training.recordings import bursts


def test_front_end_is_the_teachers() -> None:
    assert manifest.read(directory("yamnet")).input == FRONT_END


def test_grid() -> None:
    samples = bursts(1)
    patches = window_grid(samples)
    assert patches.shape == (5, 96, 64)
    for window, patch in enumerate(patches):
        piece = samples[window * 8_000 : window * 8_000 + FRONT_END.samples]
        np.testing.assert_array_equal(patch, logmel.log_mel_frames(FRONT_END, piece))
    assert window_grid(samples[:10]).shape == (1, 96, 64)


def test_crops_hold_sound() -> None:
    silence = np.log(FRONT_END.offset)
    made = crops(bursts(2), 20, np.random.default_rng(3))
    assert made.shape == (20, 96, 64)
    held = made.max(axis=(1, 2)) > silence + 2.0
    assert held.mean() > 0.6, "a fast crop at the edge of a sound may miss it"
    assert len(np.unique(made[held].sum(axis=(1, 2)))) == held.sum()
    assert crops(np.zeros(100, np.float32), 2, np.random.default_rng(3)).max() <= silence + 1e-5


def test_active_places() -> None:
    starts = active_starts(bursts(2), 16_000)
    assert starts.min() >= 16_000
    assert starts.max() == 32_000
