"""Resampling: exact against its definition, blind to cuts, and good enough as a filter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.audio.filters import MAX_POSITIONS, design
from streams.audio.resample import Resampler
from streams.models.protocol import Floats
from tests import naive
from tests.audio import noise, sine

MODEL = 16_000
USUAL = [8_000, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 384_000]
AWKWARD = [1_001, 15_999, 44_056, 383_999]


def whole(samples: Floats, rate: int) -> Floats:
    resampler = Resampler(rate, MODEL)
    return np.concatenate((resampler.feed(samples), resampler.finish()))


@pytest.mark.parametrize("rate", USUAL + AWKWARD)
def test_equals_its_definition(rate: int) -> None:
    samples = noise(rate // 8)
    got = whole(samples, rate)
    assert len(got) == -(-len(samples) * MODEL // rate)
    some = np.unique(np.concatenate((np.arange(40), np.linspace(0, len(got) - 1, 200, dtype=np.intp))))
    want = naive.resample(samples, rate, MODEL, some)
    assert np.abs(got[some] - want).max() < 1e-6


@given(
    rate=st.sampled_from([*USUAL, *AWKWARD, MODEL]),
    length=st.integers(0, 3000),
    cuts=st.lists(st.integers(0, 3000), max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_cuts_change_nothing(rate: int, length: int, cuts: list[int]) -> None:
    samples = noise(length)
    resampler = Resampler(rate, MODEL)
    pieces = [resampler.feed(piece) for piece in np.split(samples, sorted(min(cut, length) for cut in cuts))]
    assert np.array_equal(np.concatenate([*pieces, resampler.finish()]), whole(samples, rate))


@given(rate=st.sampled_from([*USUAL, *AWKWARD, MODEL]), start=st.floats(0, 1), early=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_begins_anywhere(rate: int, start: float, early: float) -> None:
    samples = noise(3000)
    want = whole(samples, rate)
    first = int(start * len(want))
    at = int(early * design(rate, MODEL).first_input(first))
    resampler = Resampler(rate, MODEL, at=at, first=first)
    got = [resampler.feed(piece) for piece in np.split(samples[at:], [7, 700])]
    assert np.array_equal(np.concatenate([*got, resampler.finish()]), want[first:])


def test_far_from_the_beginning() -> None:
    """A day into a stream positions still are exact: inputs moved by whole periods give the same bits."""
    samples = noise(44_100)
    day = 24 * 3600
    late = Resampler(44_100, MODEL, at=day * 44_100, first=day * MODEL + 100)
    assert np.array_equal(late.feed(samples)[:15_000], whole(samples, 44_100)[100:15_100])


def test_needs_what_it_says() -> None:
    resampler = Resampler(44_100, MODEL)
    with pytest.raises(ValueError, match="needs input"):
        Resampler(44_100, MODEL, at=resampler.filter.first_input(500) + 1, first=500)
    assert resampler.filter.ready_outputs(resampler.filter.inputs_for(500)) == 501
    assert resampler.filter.ready_outputs(resampler.filter.inputs_for(500) - 1) == 500


def test_equal_rates_change_nothing() -> None:
    samples = noise(1000)
    assert np.array_equal(whole(samples, MODEL), samples)


@pytest.mark.parametrize("rate", range(1_000, 384_001, 31_917))
def test_tables_are_bounded(rate: int) -> None:
    assert design(rate, MODEL).table.nbytes <= 3 * 2**20
    assert design(rate, MODEL).mixed == (design(rate, MODEL).up > MAX_POSITIONS)


def tone(rate: int, hertz: float) -> Floats:
    """A resampled sine, without its ends."""
    return whole(sine(0.5, hertz, rate), rate)[800:-800]


def decibels(samples: Floats) -> float:
    """Level relative to a full-scale sine."""
    return float(10 * np.log10(2 * np.mean(samples.astype(np.float64) ** 2) + 1e-30))


@pytest.mark.parametrize("rate", [22_050, 44_100, 44_056, 48_000, 384_000])
def test_quality_going_down(rate: int) -> None:
    ripple = [decibels(tone(rate, hertz)) for hertz in np.linspace(50, 0.86 * MODEL / 2, 12)]
    assert max(map(abs, ripple)) < 0.05
    folded = [decibels(tone(rate, hertz)) for hertz in np.linspace(1.04 * MODEL / 2, 0.99 * rate / 2, 20)]
    assert max(folded) < -65


@pytest.mark.parametrize("rate", [8_000, 11_025, 12_000])
def test_quality_going_up(rate: int) -> None:
    hertz = 0.43 * rate
    got = tone(rate, hertz).astype(np.float64)
    angle = 2 * np.pi * hertz * np.arange(len(got)) / MODEL
    basis = np.stack((np.sin(angle), np.cos(angle)), axis=1)
    images = got - basis @ np.linalg.lstsq(basis, got, rcond=None)[0]
    assert abs(decibels(got.astype(np.float32))) < 0.05
    assert decibels(images.astype(np.float32)) < -65
