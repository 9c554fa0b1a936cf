"""Soft recordings are raised to one level; loud ones, and near silence, stay unchanged."""

import numpy as np
import pytest

from streams.voice import loudness as levels
from tests.audio import RATE, noise


@pytest.mark.parametrize("cuts", [(), (1, 7, RATE)])
def test_soft_recordings_reach_target_level(cuts: tuple[int, ...]) -> None:
    soft = noise(2 * RATE) * np.float32(0.01)
    meter = levels.Meter()
    for block in np.split(soft, cuts):
        meter.add(block)
    loud = levels.amplified(soft, meter.gain)
    assert loud.dtype == np.float32
    assert 10 * np.log10(np.mean(loud.astype(np.float64) ** 2)) == pytest.approx(levels.LEVEL_DB, abs=0.1)
    np.testing.assert_allclose(levels.levelled(soft), loud, rtol=1e-5)


def test_peaks_are_limited() -> None:
    samples = noise(RATE) * np.float32(0.001)
    samples[100] = 0.5
    assert np.abs(levels.levelled(samples)).max() == 1.0


def test_loud_recordings_and_silence_are_unchanged() -> None:
    loud = noise(RATE)
    loud *= np.float32(0.3 / np.sqrt(np.mean(loud**2)))
    assert levels.levelled(loud) is loud
    assert levels.Meter().gain == 1.0
    assert not levels.levelled(np.zeros(RATE, np.float32)).any()


def test_gain_of_near_silence_is_limited() -> None:
    meter = levels.Meter()
    meter.add(noise(RATE) * np.float32(1e-6))
    assert 20 * np.log10(meter.gain) == pytest.approx(levels.MOST_DB)
