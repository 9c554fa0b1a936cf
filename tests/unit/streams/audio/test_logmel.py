"""Log-mel frames: equal to the definition, and to themselves whatever else is computed in the same call."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.models.recipes import RECIPES
from streams.audio import logmel
from streams.models.manifest import LogMel
from tests import naive
from tests.unit.streams.audio.engines import YAMNET

OTHER = LogMel(
    sample_rate=32_000, frames=100, bands=128, window=1024, hop=320, fft=2048, low_hz=0.0, high_hz=16_000.0, offset=1e-3
)


#: Bands so narrow that some hold no bin of the spectrum.
NARROW = msgspec.structs.replace(YAMNET, high_hz=1000.0)
FRONTS = pytest.mark.parametrize("front", [YAMNET, OTHER, NARROW], ids=["yamnet", "other", "narrow"])
#: Each way in which a front end may differ from YAMNet's, by itself, and all at once as published models have them.
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


@FRONTS
def test_equals_its_definition(front: LogMel) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, front.window + 70 * front.hop).astype(np.float32)
    got = logmel.log_mel_frames(front, samples)
    assert got.shape == (71, front.bands)
    assert np.abs(got - naive.log_mel(front, samples)).max() < 1e-5


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_a_variant_equals_its_definition(change: dict[str, object]) -> None:
    front = msgspec.structs.replace(YAMNET, **change)
    samples = np.random.default_rng(0).normal(0, 0.1, front.span + 2 * front.hop).astype(np.float32)
    got = logmel.log_mel_frames(front, samples)
    assert got.shape == (3, front.bands)
    assert np.abs(got - naive.log_mel(front, samples)).max() < 2e-4
    assert np.abs(got - logmel.log_mel_frames(YAMNET, samples)[:3]).max() > 1e-3
    assert np.abs(logmel.mel_matrix(front) - naive.mel(front)).max() < 1e-9


@pytest.mark.parametrize("name", ["efficientat", "ced"])
def test_front_ends_of_recipes(name: str) -> None:
    front = RECIPES[name].input
    assert isinstance(front, LogMel)
    samples = np.random.default_rng(0).normal(0, 0.1, front.sample_rate).astype(np.float32)
    assert front.samples <= front.sample_rate
    got = logmel.log_mel_frames(front, samples)[: front.frames]
    assert got.shape == (front.frames, front.bands)
    assert np.abs(got - naive.log_mel(front, samples)[: front.frames]).max() < 1e-4
    assert np.isfinite(logmel.log_mel_frames(front, np.zeros_like(samples))).all()


@pytest.mark.parametrize("first", [0, 1, 7])
def test_an_emphasised_frame_knows_one_sample_more(first: int) -> None:
    front = msgspec.structs.replace(YAMNET, pre_emphasis=0.97)
    samples = np.random.default_rng(0).normal(0, 0.1, front.span + 2 * front.hop).astype(np.float32)
    alone = logmel.log_mel_frames(front, samples[first * front.hop :][: front.span])
    assert np.array_equal(alone, logmel.log_mel_frames(front, samples)[first : first + 1])
    assert len(logmel.log_mel_frames(front, samples[: front.span - 1])) == 0


@FRONTS
def test_mel_matrix(front: LogMel) -> None:
    assert np.abs(logmel.mel_matrix(front) - naive.mel(front)).max() < 1e-9


@given(seed=st.integers(0, 99), first=st.integers(0, 140), count=st.integers(1, 140))
@settings(max_examples=60, deadline=None)
def test_a_frame_does_not_know_its_neighbours(seed: int, first: int, count: int) -> None:
    samples = np.random.default_rng(seed).normal(0, 0.1, YAMNET.window + 279 * YAMNET.hop).astype(np.float32)
    part = samples[first * YAMNET.hop :][: YAMNET.window + (count - 1) * YAMNET.hop]
    got = logmel.log_mel_frames(YAMNET, part)
    assert np.array_equal(got, logmel.log_mel_frames(YAMNET, samples)[first : first + count])


def test_silence_is_the_offset() -> None:
    assert np.array_equal(
        np.unique(logmel.log_mel_frames(YAMNET, np.zeros(4000, np.float32))), [np.log(np.float32(YAMNET.offset))]
    )


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2)])
def test_only_whole_frames(samples: int, frames: int) -> None:
    assert logmel.log_mel_frames(YAMNET, np.zeros(samples, np.float32)).shape == (frames, 64)


def test_the_loudest_float_stays_finite() -> None:
    loud = np.where(np.arange(800) % 40 < 20, np.float32(2**31), np.float32(-(2**31)))
    assert np.isfinite(logmel.log_mel_frames(YAMNET, loud)).all()
