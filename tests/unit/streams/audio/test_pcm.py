"""Raw PCM in every format against one sample at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audio import pcm
from tests import naive
from topics.errors import AudioError

INTEGERS = [f"{kind}{bits}{order}" for kind in "su" for bits in (8, 16, 24, 32) for order in ("le", "be")]


@pytest.mark.parametrize("sample_format", INTEGERS)
@given(data=st.binary(max_size=96), channels=st.integers(1, 3))
def test_integers(sample_format: str, data: bytes, channels: int) -> None:
    size = pcm.frame_bytes(sample_format, 1)
    data = data[: len(data) // (size * channels) * size * channels]
    want = [naive.integer_sample(data[i : i + size], sample_format) for i in range(0, len(data), size)]
    got = pcm.decode(data, sample_format, channels)
    assert got.dtype == np.float32
    assert np.array_equal(got, np.array(want, np.float32).reshape(-1, channels))


@pytest.mark.parametrize("sample_format", INTEGERS)
def test_full_scale_and_silence(sample_format: str) -> None:
    size = pcm.frame_bytes(sample_format, 1)
    half = 2 ** (size * 8 - 1)
    low = 0 if sample_format[0] == "u" else -half
    samples = [(low + n).to_bytes(size, "big", signed=low < 0) for n in (0, half)]
    data = b"".join(sample[::-1] if sample_format.endswith("le") else sample for sample in samples)
    assert pcm.decode(data, sample_format, 1)[:, 0].tolist() == [-1.0, 0.0]


@pytest.mark.parametrize(
    ("sample_format", "code"), [("f16le", "<f2"), ("f16be", ">f2"), ("f32le", "<f4"), ("f32be", ">f4")]
)
def test_floats(sample_format: str, code: str) -> None:
    values = np.array([[0.0, -1.0], [0.5, 0.25]], code)
    assert pcm.decode(values.tobytes(), sample_format, 2).tolist() == values.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_floats_that_would_spoil_the_spectrum(bad: float) -> None:
    with pytest.raises(AudioError, match="not all finite"):
        pcm.decode(np.array([0.0, bad, 0.0], "<f4").tobytes(), "f32le", 1)


@pytest.mark.parametrize(
    ("length", "sample_format", "channels", "size"), [(5, "s16le", 1, 2), (8, "s24be", 1, 3), (6, "s16le", 2, 4)]
)
def test_part_of_a_frame(length: int, sample_format: str, channels: int, size: int) -> None:
    with pytest.raises(AudioError, match=rf"{length} bytes .* frames of {size} bytes"):
        pcm.decode(bytes(length), sample_format, channels)


def test_mono_is_the_mean() -> None:
    frames = np.array([[1.0, 0.0, -0.25], [0.5, 0.5, 0.5]], np.float32)
    assert pcm.to_mono(frames).tolist() == [0.25, 0.5]
    assert pcm.to_mono(frames[:, :1].copy()).flags.c_contiguous
