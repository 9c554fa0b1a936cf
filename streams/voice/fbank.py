"""Log-mel filter-bank frames, as computed by Kaldi's `compute-fbank-feats` or by NeMo."""

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streams.audio.logmel import mel_matrix
from streams.models.manifest import LogMel
from streams.models.protocol import Floats
from streams.voice.speaker_manifest import FbankInput
from topics.errors import AudioError

#: Kaldi's floor for the power of a band (float32's epsilon), and what NeMo adds to the power instead.
KALDI_FLOOR: Final = np.float32(1.1920929e-07)
NEMO_GUARD: Final = np.float32(2.0**-24)
#: Keeps a constant band finite, as in NeMo's `normalize_batch`.
DEVIATION_FLOOR: Final = np.float32(1e-5)


def fbank(front: FbankInput, samples: Floats) -> Floats:
    """Return float32[frames, bands] of float32[n] in -1..1: the frames that lie wholly in the samples (snip_edges).

    Per frame: scale, subtract the mean, pre-emphasis x[t] - a x[t - 1] with x[-1] = x[0], window, power spectrum padded
    to a power of two, bands, natural logarithm. Then normalise over all frames. There is no dither.
    Formulas: Kaldi's feat/feature-fbank.cc and feature-window.cc; NeMo's AudioToMelSpectrogramPreprocessor.

    Raises:
        AudioError: there are fewer samples than one frame has.
    """
    length, hop = round(front.frame_s * front.sample_rate), round(front.hop_s * front.sample_rate)
    if len(samples) < length:
        raise AudioError(f"{len(samples)} samples of audio, less than a frame ({length})")
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[::hop] * np.float32(front.scale)
    if front.remove_dc:
        frames = frames - frames.mean(axis=1, keepdims=True)
    previous = np.concatenate((frames[:, :1], frames[:, :-1]), axis=1)
    window, matrix = tables(front)
    spectrum = np.fft.rfft((frames - np.float32(front.pre_emphasis) * previous) * window, _transform_length(length))
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
def tables(front: FbankInput) -> tuple[Floats, Floats]:
    """Return the window, float32[samples], and the weights of the bands, float32[bins, bands]."""
    length = round(front.frame_s * front.sample_rate)
    fft = _transform_length(length)
    high = front.sample_rate / 2 if front.high_hz is None else front.high_hz
    bands = LogMel(front.sample_rate, 1, front.bands, length, 1, fft, front.low_hz, high, 1.0)
    if front.mel == "slaney":
        bands = msgspec.structs.replace(bands, mel_scale="slaney", mel_slopes="hertz", mel_norm="area")
    matrix = mel_matrix(bands)
    return _window(front.window, length).astype(np.float32), matrix.T.astype(np.float32)


def _window(kind: str, length: int) -> npt.NDArray[np.float64]:
    # Kaldi's windows are symmetric, NeMo's (kaldi-native-fbank's "hann") is periodic.
    angles = 2.0 * np.pi * np.arange(length) / (length if kind == "hann" else length - 1)
    if kind == "hamming":
        return 0.54 - 0.46 * np.cos(angles)
    hann: npt.NDArray[np.float64] = 0.5 - 0.5 * np.cos(angles)
    return hann if kind == "hann" else hann**0.85


def _transform_length(length: int) -> int:
    return 1 << (length - 1).bit_length()
