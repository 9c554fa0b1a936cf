"""Levels and spectrograms: the same however the audio is cut, and right about sines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audio.levels import KEPT, SoundMeter
from streams.models.protocol import Floats
from topics.ports.live import BANDS, HIGH_HZ, LOW_HZ, SILENCE_DB, WindowSound


def sine(rate: int, hertz: float, seconds: float, peak: float = 1.0) -> Floats:
    """Return float32 samples."""
    return (peak * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def drawing() -> SoundMeter:
    """Return a meter that draws."""
    meter = SoundMeter()
    meter.draws = True
    return meter


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100, 48_000, 192_000])
def test_a_full_scale_sine(rate: int) -> None:
    meter = drawing()
    meter.feed(rate, 0, sine(rate, 1000.0, 2.0))
    sound = meter.window(1, 2, 1)
    assert sound is not None
    assert sound.rms == pytest.approx(-3.0, abs=0.1)
    assert sound.peak == pytest.approx(0.0, abs=0.2)
    columns = np.frombuffer(sound.columns, np.uint8).reshape(-1, BANDS)
    assert len(columns) == 10
    mels = 1127 * np.log1p(np.array([LOW_HZ, 1000.0, min(HIGH_HZ, rate / 2)]) / 700)
    assert columns.argmax(axis=1).tolist() == pytest.approx(
        [(mels[1] - mels[0]) / (mels[2] - mels[0]) * BANDS - 0.5] * 10, abs=1.5
    )
    assert columns.max() >= 249, "within 3 dB of full scale"
    assert columns.min() < 120


def test_silence_and_half_of_full_scale() -> None:
    meter = drawing()
    meter.feed(16_000, 0, np.concatenate((np.zeros(8000, np.float32), sine(16_000, 500.0, 0.5, 0.5))))
    assert meter.window(0, 1, 1) == WindowSound(SILENCE_DB, SILENCE_DB, bytes(10 * BANDS))
    loud = meter.window(1, 1, 1)
    assert loud is not None
    assert (loud.rms, loud.peak) == (-9.0, -6.0)


@given(st.lists(st.integers(1, 9000), max_size=12), st.sampled_from([8000, 11_025, 16_000, 22_050]))
def test_however_it_is_cut(cuts: list[int], rate: int) -> None:
    samples = np.random.default_rng(rate).normal(0, 0.1, 3 * rate).astype(np.float32)
    whole, pieces = drawing(), drawing()
    whole.feed(rate, 0, samples)
    at = 0
    for cut in [*cuts, len(samples)]:
        # A restart feeds again what was fed before.
        pieces.feed(rate, max(0, at - 100), samples[max(0, at - 100) : at + cut])
        at = min(len(samples), at + cut)
    for number in range(5):
        one, other = whole.window(number, 2, 1), pieces.window(number, 2, 1)
        assert one is not None
        assert other is not None
        assert one.peak == other.peak
        assert one.rms == pytest.approx(other.rms, abs=0.11)
        assert (
            np.abs(np.frombuffer(one.columns, np.uint8).astype(int) - np.frombuffer(other.columns, np.uint8)).max() <= 1
        )


def test_what_came_before_the_listener_is_not_known() -> None:
    meter = drawing()
    meter.feed(16_000, 20_000, np.ones(20_000, np.float32))
    assert meter.window(2, 1, 1) is None, "it began in the middle of this one"
    assert meter.window(3, 2, 1) is not None
    assert meter.window(9, 1, 1) is None


def test_after_a_gap_it_goes_on_with_the_next_segment() -> None:
    meter = drawing()
    meter.feed(16_000, 0, np.ones(8000, np.float32))
    meter.feed(16_000, 16_000, np.ones(8000, np.float32))
    assert meter.window(0, 1, 1) is not None
    assert meter.window(1, 1, 1) is None
    assert meter.window(2, 1, 1) is not None


def test_it_remembers_so_much_and_no_more() -> None:
    meter = drawing()
    for number in range(3 * KEPT):
        meter.feed(8000, 4000 * number, np.ones(4000, np.float32))
    known = [number for number in range(3 * KEPT) if meter.window(number, 1, 1) is not None]
    assert known == list(range(2 * KEPT, 3 * KEPT))


def test_a_listener_that_comes_later_gets_columns_from_then_on() -> None:
    meter = SoundMeter()
    meter.feed(16_000, 0, np.ones(12_000, np.float32))
    meter.draws = True
    meter.feed(16_000, 12_000, np.ones(12_000, np.float32))
    columns = [sound.columns for number in range(3) if (sound := meter.window(number, 1, 1)) is not None]
    assert [len(one) for one in columns] == [0, 0, 10 * BANDS]


def test_a_stream_of_another_rate_begins_anew() -> None:
    meter = drawing()
    meter.feed(16_000, 0, np.ones(16_000, np.float32))
    meter.feed(8000, 0, np.ones(4000, np.float32))
    assert meter.window(0, 1, 1) is not None
    assert meter.window(1, 1, 1) is None


def test_few_samples_have_a_level_and_no_picture() -> None:
    meter = drawing()
    meter.feed(1000, 0, np.ones(1000, np.float32))
    assert meter.window(0, 2, 2) == WindowSound(0.0, 0.0)
