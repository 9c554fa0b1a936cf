"""Log-mel frames, each computed by itself: equal samples give equal bits however many frames are computed."""

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streams.models.manifest import LogMel
from streams.models.protocol import Floats

Ints = npt.NDArray[np.intp]


class FrontEndTables(msgspec.Struct, frozen=True):
    """A front end's parameters for the kernel, computed once."""

    #: float32[window], the front end's taper.
    window: Floats
    #: Order in which sample pairs enter the transform: the index with its bits reversed, intp[fft / 2].
    order: Ints
    #: exp(-2 pi i k / fft) for k < fft / 2, float32[fft / 2] each.
    cosines: Floats
    sines: Floats
    #: First bin of each band, and its weights from there: intp[bands], float32[bands, longest band + 1].
    first_bins: Ints
    weights: Floats


@lru_cache(maxsize=8)
def tables(front: LogMel) -> FrontEndTables:
    half = front.fft // 2
    bits = half.bit_length() - 1
    order = np.zeros(half, np.intp)
    for bit in range(bits):
        order |= ((np.arange(half) >> bit) & 1) << (bits - 1 - bit)
    angles = 2.0 * np.pi * np.arange(half) / front.fft
    period = front.window if front.taper == "hann" else front.window - 1
    hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(front.window) / period)
    matrix = mel_matrix(front)
    first_bins = np.argmax(matrix > 0, axis=1)
    weights = np.zeros((front.bands, int((matrix > 0).sum(axis=1).max()) + 1))
    for band, first in enumerate(first_bins):
        row = matrix[band, first : first + weights.shape[1]]
        weights[band, : len(row)] = row
    return FrontEndTables(
        hann.astype(np.float32),
        order,
        np.cos(angles).astype(np.float32),
        -np.sin(angles).astype(np.float32),
        first_bins,
        weights.astype(np.float32),
    )


def mel_matrix(front: LogMel) -> npt.NDArray[np.float64]:
    """Return float64[bands, fft / 2 + 1]: triangles with edges evenly spaced on the mel scale.

    Height one and linear in mel match TensorFlow's `linear_to_mel_weight_matrix` and Kaldi's `MelBanks`; height one and
    linear in Hz, torchaudio's `melscale_fbanks`; area one and linear in Hz on Slaney's scale, librosa's `filters.mel`.
    The bin at 0 Hz has no weight.
    """
    bins = np.arange(front.fft // 2 + 1) * front.sample_rate / front.fft
    ends = _to_mel(np.array([front.low_hz, front.high_hz]), front.mel_scale)
    edges = np.linspace(ends[0], ends[1], front.bands + 2)
    hertz = _to_hertz(edges, front.mel_scale)
    if front.mel_slopes == "mel":
        bins = _to_mel(bins, front.mel_scale)
    else:
        edges = hertz
    low, centre, high = edges[:-2, np.newaxis], edges[1:-1, np.newaxis], edges[2:, np.newaxis]
    matrix: npt.NDArray[np.float64] = np.clip(
        np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)), 0.0, None
    )
    matrix[:, 0] = 0.0
    if front.mel_norm == "area":
        matrix *= 2.0 / (hertz[2:] - hertz[:-2])[:, np.newaxis]
    return matrix


#: Slaney's Auditory Toolbox: 3 mel per 200 Hz up to 1 kHz, then 27 mel per factor of 6.4.
_SLANEY_STEP: Final = np.log(6.4) / 27.0


def _to_mel(hertz: npt.NDArray[np.float64], scale: str) -> npt.NDArray[np.float64]:
    if scale == "htk":
        return 1127.0 * np.log1p(hertz / 700.0)
    above = 15.0 + np.log(np.maximum(hertz, 1000.0) / 1000.0) / _SLANEY_STEP
    return np.where(hertz > 1000.0, above, 3.0 * hertz / 200.0)


def _to_hertz(mel: npt.NDArray[np.float64], scale: str) -> npt.NDArray[np.float64]:
    if scale == "htk":
        return 700.0 * np.expm1(mel / 1127.0)
    return np.where(mel > 15.0, 1000.0 * np.exp(_SLANEY_STEP * (mel - 15.0)), 200.0 * mel / 3.0)


def log_mel_frames(front: LogMel, samples: Floats) -> Floats:
    """Return the frames that lie wholly in float32[samples], float32[n, bands]; frame j begins at sample j * hop."""
    return append_log_mel_frames(front, np.empty((0, front.bands), np.float32), np.empty(0, np.float32), samples)[0]


def append_log_mel_frames(front: LogMel, frames: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
    """Return `frames`, float32[n, bands], with those that `begun` and `samples` complete; and the remaining samples.

    `begun` holds the samples from the first incomplete frame on, and so does the second result.
    """
    from streams.audio import kernels

    count = max(0, (len(begun) + len(samples) - front.span) // front.hop + 1)
    joined = np.empty(len(begun) + len(samples), np.float32)
    out = np.empty((len(frames) + count, front.bands), np.float32)
    t = tables(front)
    added = np.float32(front.offset if front.guard == "sum" else 0.0)
    emphasis, squared = np.float32(front.pre_emphasis), front.power == 2
    # One call for everything: numpy releases the GIL at each step, and another thread may take it then.
    kernels.append_frames(
        frames, begun, samples, emphasis, front.hop, t.window, t.order, t.cosines, t.sines, t.first_bins, t.weights,
        squared, added, joined, out,
    )  # fmt: skip
    fresh = out[len(frames) :]
    if front.guard == "floor":
        np.maximum(fresh, np.float32(front.offset), out=fresh)
    np.log(fresh, out=fresh)
    # The rest is affine: from ln to dB, then (x - mean) / std.
    scale = (10.0 / np.log(10.0) if front.log == "dB" else 1.0) / front.std
    if scale != 1.0 or front.mean != 0.0:
        fresh *= np.float32(scale)
        fresh -= np.float32(front.mean / front.std)
    # Copy, so that the rest does not keep all samples in memory.
    return out, joined[count * front.hop :].copy()
