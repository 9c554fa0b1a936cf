"""Log mel filter-bank frames as Kaldi's `compute-fbank-feats` makes them, and NeMo's variant of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.audio.logmel import mel_matrix
from streams.models.manifest import LogMel
from streams.models.protocol import Floats
from streams.voice.manifest import FbankInput
from topics.errors import AudioError

#: Kaldi's floor of a band's power (the epsilon of float32); NeMo adds this guard instead.
KALDI_FLOOR: Final = np.float32(1.1920929e-07)
NEMO_GUARD: Final = np.float32(2.0**-24)
#: Keeps a constant band finite, as in NeMo's `normalize_batch`.
DEVIATION_FLOOR: Final = np.float32(1e-5)


def fbank(front: FbankInput, samples: Floats) -> Floats:
    """Return float32[frames, bands] of float32[n] in -1..1: the frames that lie wholly in the samples (snip_edges).

    Of each frame alone: scale, minus its mean, pre-emphasis x[t] - a x[t - 1] with x[-1] = x[0], window, power
    spectrum padded to a power of two, bands, natural logarithm; then normalisation over all frames. No dither.

    Raises:
        AudioError: there is no whole frame.
    """
    length, hop = round(front.frame_s * front.sample_rate), round(front.hop_s * front.sample_rate)
    if len(samples) < length:
        raise AudioError(f"{len(samples)} samples of audio, less than a frame ({length})")
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[::hop] * np.float32(front.scale)
    if front.remove_dc:
        frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate((frames[:, :1], frames[:, :-1]), axis=1)
    window, matrix = _tables(front)
    spectrum = np.fft.rfft((frames - np.float32(front.pre_emphasis) * before) * window, _transform_length(length))
    powers = (spectrum.real**2 + spectrum.imag**2).astype(np.float32) @ matrix
    logs = np.log(np.maximum(powers, KALDI_FLOOR) if front.mel == "kaldi" else powers + NEMO_GUARD)
    return _normalised(front, logs)


def _normalised(front: FbankInput, logs: Floats) -> Floats:
    if front.normalisation == "none":
        return logs
    logs = logs - logs.mean(axis=0)
    if front.normalisation == "mean":
        return logs
    deviation = np.sqrt((logs**2).sum(axis=0) / max(1, len(logs) - 1))
    scaled: Floats = logs / (deviation + DEVIATION_FLOOR)
    return scaled


@lru_cache(maxsize=8)
def _tables(front: FbankInput) -> tuple[Floats, Floats]:
    """Return (window float32[samples], float32[bins, bands])."""
    length = round(front.frame_s * front.sample_rate)
    fft = _transform_length(length)
    high = front.sample_rate / 2 if front.high_hz is None else front.high_hz
    if front.mel == "kaldi":
        matrix = mel_matrix(LogMel(front.sample_rate, 1, front.bands, length, 1, fft, front.low_hz, high, 1.0))
    else:
        matrix = _slaney(np.arange(fft // 2 + 1) * front.sample_rate / fft, front.bands, front.low_hz, high)
    return _window(front.window, length).astype(np.float32), matrix.T.astype(np.float32)


def _window(kind: str, length: int) -> npt.NDArray[np.float64]:
    # Kaldi's windows are symmetric, NeMo's (kaldi-native-fbank's "hann") is periodic.
    turns = 2.0 * np.pi * np.arange(length) / (length if kind == "hann" else length - 1)
    if kind == "hamming":
        return 0.54 - 0.46 * np.cos(turns)
    hann: npt.NDArray[np.float64] = 0.5 - 0.5 * np.cos(turns)
    return hann if kind == "hann" else hann**0.85


def _slaney(hertz: npt.NDArray[np.float64], bands: int, low: float, high: float) -> npt.NDArray[np.float64]:
    """Return float64[bands, bins]: triangles of area one, linear in Hz, edges even on Slaney's scale (librosa)."""
    # Slaney's Auditory Toolbox: 3 mel each 200 Hz up to 1 kHz, then 27 mel each factor of 6.4.
    step = np.log(6.4) / 27.0
    first, last = (15.0 + np.log(f / 1000.0) / step if f > 1000.0 else 3.0 * f / 200.0 for f in (low, high))
    mels = np.linspace(first, last, bands + 2)
    edges = np.where(mels > 15.0, 1000.0 * np.exp(step * (mels - 15.0)), 200.0 * mels / 3.0)
    left, centre, right = edges[:-2, np.newaxis], edges[1:-1, np.newaxis], edges[2:, np.newaxis]
    triangles = np.clip(np.minimum((hertz - left) / (centre - left), (right - hertz) / (right - centre)), 0.0, None)
    areas: npt.NDArray[np.float64] = triangles * 2.0 / (right - left)
    return areas


def _transform_length(length: int) -> int:
    return 1 << (length - 1).bit_length()
