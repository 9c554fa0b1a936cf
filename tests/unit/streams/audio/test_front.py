"""The input of models: resampled samples and log-mel frames equal their definitions for any cuts of the audio."""

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.audio import logmel
from streams.audio.filters import MAX_POSITIONS, design
from streams.audio.resample import Resampler
from streams.models.manifest import LogMel
from streams.models.protocol import Floats
from tests import naive
from tests.audio import noise, sine
from tests.unit.streams.audio.engines import YAMNET

MODEL = 16_000
USUAL = [8_000, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 384_000]
AWKWARD = [1_001, 15_999, 44_056, 383_999]


def whole(samples: Floats, rate: int) -> Floats:
    resampler = Resampler(rate, MODEL)
    return np.concatenate((resampler.feed(samples), resampler.finish()))


@pytest.mark.parametrize("rate", USUAL + AWKWARD)
def test_resampling_matches_reference(rate: int) -> None:
    samples = noise(rate // 8)
    got = whole(samples, rate)
    assert len(got) == -(-len(samples) * MODEL // rate)
    some = np.unique(np.concatenate((np.arange(40), np.linspace(0, len(got) - 1, 200, dtype=np.intp))))
    want = naive.resample(samples, rate, MODEL, some)
    assert np.abs(got[some] - want).max() < 1e-6


rates = st.sampled_from([*USUAL, *AWKWARD, MODEL])


@given(rate=rates, length=st.integers(0, 3000), cuts=st.lists(st.integers(0, 3000), max_size=6))
@settings(max_examples=60)
def test_resampling_is_independent_of_cuts(rate: int, length: int, cuts: list[int]) -> None:
    samples = noise(length)
    resampler = Resampler(rate, MODEL)
    pieces = [resampler.feed(piece) for piece in np.split(samples, sorted(min(cut, length) for cut in cuts))]
    assert np.array_equal(np.concatenate([*pieces, resampler.finish()]), whole(samples, rate))


@given(rate=rates, start=st.floats(0, 1), early=st.floats(0, 1))
@settings(max_examples=60)
def test_resampler_can_start_anywhere(rate: int, start: float, early: float) -> None:
    samples = noise(3000)
    want = whole(samples, rate)
    first = int(start * len(want))
    at = int(early * design(rate, MODEL).first_input(first))
    resampler = Resampler(rate, MODEL, at=at, first=first)
    got = [resampler.feed(piece) for piece in np.split(samples[at:], [7, 700])]
    assert np.array_equal(np.concatenate([*got, resampler.finish()]), want[first:])


def test_positions_stay_exact_after_a_day() -> None:
    """A day into a stream positions are still exact: inputs shifted by whole periods give the same bits."""
    samples = noise(44_100)
    day = 24 * 3600
    late = Resampler(44_100, MODEL, at=day * 44_100, first=day * MODEL + 100)
    assert np.array_equal(late.feed(samples)[:15_000], whole(samples, 44_100)[100:15_100])


def test_resampler_reports_required_input() -> None:
    resampler = Resampler(44_100, MODEL)
    with pytest.raises(ValueError, match="needs input"):
        Resampler(44_100, MODEL, at=resampler.filter.first_input(500) + 1, first=500)
    assert resampler.filter.ready_outputs(resampler.filter.inputs_for(500)) == 501
    assert resampler.filter.ready_outputs(resampler.filter.inputs_for(500) - 1) == 500


def test_equal_rates_pass_samples_through() -> None:
    samples = noise(1000)
    assert np.array_equal(whole(samples, MODEL), samples)


@pytest.mark.parametrize("rate", range(1_000, 384_001, 31_917))
def test_filter_table_size_is_bounded(rate: int) -> None:
    assert design(rate, MODEL).table.nbytes <= 3 * 2**20
    assert design(rate, MODEL).mixed == (design(rate, MODEL).up > MAX_POSITIONS)


def tone(rate: int, hertz: float) -> npt.NDArray[np.float64]:
    return whole(sine(0.5, hertz, rate), rate)[800:-800].astype(np.float64)


def decibels(samples: npt.NDArray[np.float64]) -> float:
    return float(10 * np.log10(2 * np.mean(samples**2) + 1e-30))


@pytest.mark.parametrize("rate", [22_050, 44_100, 44_056, 48_000, 384_000])
def test_downsampling_has_low_ripple_and_aliasing(rate: int) -> None:
    ripple = [decibels(tone(rate, hertz)) for hertz in np.linspace(50, 0.86 * MODEL / 2, 12)]
    assert max(map(abs, ripple)) < 0.05
    folded = [decibels(tone(rate, hertz)) for hertz in np.linspace(1.04 * MODEL / 2, 0.99 * rate / 2, 20)]
    assert max(folded) < -65


@pytest.mark.parametrize("rate", [8_000, 11_025, 12_000])
def test_upsampling_has_low_ripple_and_images(rate: int) -> None:
    hertz = 0.43 * rate
    got = tone(rate, hertz)
    angle = 2 * np.pi * hertz * np.arange(len(got)) / MODEL
    basis = np.stack((np.sin(angle), np.cos(angle)), axis=1)
    images = got - basis @ np.linalg.lstsq(basis, got, rcond=None)[0]
    assert abs(decibels(got)) < 0.05
    assert decibels(images) < -65


OTHER = LogMel(
    sample_rate=32_000, frames=100, bands=128, window=1024, hop=320, fft=2048, low_hz=0.0, high_hz=16_000.0, offset=1e-3
)


#: Bands so narrow that some contain no bin of the spectrum.
NARROW = msgspec.structs.replace(YAMNET, high_hz=1000.0)
#: Each difference that a front end may have from YAMNet's, alone and combined as in published models.
VARIANTS: dict[str, dict[str, object]] = {
    "pre-emphasis": {"pre_emphasis": 0.97},
    "symmetric": {"taper": "hann-symmetric"},
    "power": {"power": 2},
    "slaney": {"mel_scale": "slaney"},
    "hertz": {"mel_slopes": "hertz"},
    "slaney-hertz": {"mel_scale": "slaney", "mel_slopes": "hertz"},
    "area": {"mel_norm": "area"},
    "floor": {"guard": "floor", "offset": 1.0},
    "decibel": {"log": "dB"},
    "affine": {"mean": -4.5, "std": 5.0},
    "decibel-affine": {"log": "dB", "mean": 12.0, "std": 0.5},
}


@pytest.mark.parametrize("front", [YAMNET, OTHER, NARROW], ids=["yamnet", "other", "narrow"])
def test_log_mel_frames_match_reference(front: LogMel) -> None:
    samples = noise(front.window + 70 * front.hop)
    got = logmel.log_mel_frames(front, samples)
    assert got.shape == (71, front.bands)
    assert np.abs(got - naive.log_mel(front, samples)).max() < 1e-5
    assert np.abs(logmel.mel_matrix(front) - naive.mel(front)).max() < 1e-9


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_front_end_variants_match_reference(change: dict[str, object]) -> None:
    front = msgspec.structs.replace(YAMNET, **change)
    samples = noise(front.span + 2 * front.hop)
    got = logmel.log_mel_frames(front, samples)
    assert got.shape == (3, front.bands)
    assert np.abs(got - naive.log_mel(front, samples)).max() < 2e-4
    assert np.abs(got - logmel.log_mel_frames(YAMNET, samples)[:3]).max() > 1e-3
    assert np.abs(logmel.mel_matrix(front) - naive.mel(front)).max() < 1e-9


@pytest.mark.parametrize("first", [0, 1, 7])
def test_pre_emphasised_frame_needs_one_extra_sample(first: int) -> None:
    front = msgspec.structs.replace(YAMNET, pre_emphasis=0.97)
    samples = noise(front.span + 2 * front.hop)
    alone = logmel.log_mel_frames(front, samples[first * front.hop :][: front.span])
    assert np.array_equal(alone, logmel.log_mel_frames(front, samples)[first : first + 1])
    assert len(logmel.log_mel_frames(front, samples[: front.span - 1])) == 0


@given(seed=st.integers(0, 99), first=st.integers(0, 140), count=st.integers(1, 140))
@settings(max_examples=40)
def test_frames_are_independent_of_neighbours(seed: int, first: int, count: int) -> None:
    samples = noise(YAMNET.window + 279 * YAMNET.hop, seed)
    part = samples[first * YAMNET.hop :][: YAMNET.window + (count - 1) * YAMNET.hop]
    got = logmel.log_mel_frames(YAMNET, part)
    assert np.array_equal(got, logmel.log_mel_frames(YAMNET, samples)[first : first + count])


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2)])
def test_silence_yields_whole_frames_of_log_offset(samples: int, frames: int) -> None:
    found = logmel.log_mel_frames(YAMNET, np.zeros(samples, np.float32))
    assert np.array_equal(found, np.full((frames, 64), np.log(np.float32(YAMNET.offset))))
