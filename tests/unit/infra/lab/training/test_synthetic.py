"""Made-up sounds: bounded, of the length asked for, audible except for silence, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.training.synthetic import synthetic


@pytest.mark.parametrize("kind", range(6))
def test_kinds(kind: int) -> None:
    peaks = []
    for seed in range(20):
        samples = synthetic(kind, np.random.default_rng(seed), 16_000)
        assert samples.shape == (16_000,)
        assert samples.dtype == np.float32
        peaks.append(float(np.abs(samples).max()))
        np.testing.assert_array_equal(samples, synthetic(kind, np.random.default_rng(seed), 16_000))
    assert max(peaks) <= 10 ** (-3 / 20) + 1e-6
    assert (min(peaks) == 0.0) == (kind == 1), "kind 1 is silence"
