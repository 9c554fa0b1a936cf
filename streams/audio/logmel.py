"""Log-mel frames, each computed by itself: the same samples give the same bits however many frames are computed."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from numba import njit

from streams.models.manifest import LogMel
from streams.models.protocol import Floats

Ints = npt.NDArray[np.intp]

#: Frames that are transformed side by side: vector instructions run over frames and never mix them.
BLOCK: Final = 64


class FrontEndTables(msgspec.Struct, frozen=True):
    """The parameters of a front end that the kernel needs, computed once."""

    #: float32[window], the front end's taper.
    window: Floats
    #: Order in which pairs of samples enter the transform: the bits of the index reversed, intp[fft / 2].
    order: Ints
    #: exp(-2 pi i k / fft) for k below fft / 2, as float32[fft / 2] each.
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
    """Return float64[bands, fft / 2 + 1]: triangles whose edges are even on the mel scale.

    Of height one and linear in mel they are TensorFlow's `linear_to_mel_weight_matrix` and Kaldi's `MelBanks`, of
    height one and linear in Hz torchaudio's `melscale_fbanks`, of area one and linear in Hz on Slaney's scale librosa's
    `filters.mel`. The bin at 0 Hz counts nowhere.
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


#: Slaney's Auditory Toolbox: 3 mel each 200 Hz up to 1 kHz, from there 27 mel each factor of 6.4.
_SLANEY_STEP: Final = np.log(6.4) / 27.0


def _to_mel(hertz: npt.NDArray[np.float64], scale: str) -> npt.NDArray[np.float64]:
    if scale == "htk":
        mel: npt.NDArray[np.float64] = 1127.0 * np.log1p(hertz / 700.0)
        return mel
    above = 15.0 + np.log(np.maximum(hertz, 1000.0) / 1000.0) / _SLANEY_STEP
    return np.where(hertz > 1000.0, above, 3.0 * hertz / 200.0)


def _to_hertz(mel: npt.NDArray[np.float64], scale: str) -> npt.NDArray[np.float64]:
    if scale == "htk":
        hertz: npt.NDArray[np.float64] = 700.0 * np.expm1(mel / 1127.0)
        return hertz
    return np.where(mel > 15.0, 1000.0 * np.exp(_SLANEY_STEP * (mel - 15.0)), 200.0 * mel / 3.0)


def log_mel_frames(front: LogMel, samples: Floats) -> Floats:
    """Return the frames that lie wholly in float32[samples], float32[n, bands]; frame j begins at sample j * hop."""
    return append_log_mel_frames(front, np.empty((0, front.bands), np.float32), np.empty(0, np.float32), samples)[0]


def append_log_mel_frames(front: LogMel, frames: Floats, begun: Floats, samples: Floats) -> tuple[Floats, Floats]:
    """Return `frames`, float32[n, bands], with those that `begun` and `samples` complete; and the rest of the samples.

    `begun` are the samples from the first frame on that is not complete yet; so is the second thing returned.
    """
    count = max(0, (len(begun) + len(samples) - front.span) // front.hop + 1)
    joined = np.empty(len(begun) + len(samples), np.float32)
    out = np.empty((len(frames) + count, front.bands), np.float32)
    t = tables(front)
    added = np.float32(front.offset if front.guard == "sum" else 0.0)
    emphasis, squared = np.float32(front.pre_emphasis), front.power == 2
    # All of it in one call: numpy lets go of the interpreter's lock at each step, and another thread may have it then.
    _append_frames(
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
    # A copy, which does not keep all the samples in memory.
    return out, joined[count * front.hop :].copy()


@njit(cache=True, nogil=True, error_model="numpy")
def _append_frames(
    frames: Floats,
    begun: Floats,
    samples: Floats,
    emphasis: np.float32,
    hop: int,
    window: Floats,
    order: Ints,
    cosines: Floats,
    sines: Floats,
    first_bins: Ints,
    weights: Floats,
    squared: bool,
    offset: np.float32,
    joined: Floats,
    out: Floats,
) -> None:
    """Fill `joined` with `begun` and `samples`, and `out` with `frames` and the mel bands of those samples."""
    joined[: begun.size] = begun
    joined[begun.size :] = samples
    out[: frames.shape[0]] = frames
    emphasised = joined
    if emphasis > 0:
        emphasised = joined[1:] - emphasis * joined[:-1]
    _mel_frames(
        emphasised, hop, window, order, cosines, sines, first_bins, weights, squared, offset, out[frames.shape[0] :]
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _mel_frames(
    samples: Floats,
    hop: int,
    window: Floats,
    order: Ints,
    cosines: Floats,
    sines: Floats,
    first_bins: Ints,
    weights: Floats,
    squared: bool,
    offset: np.float32,
    out: Floats,
) -> None:
    half = order.size
    real = np.empty((half + 1, BLOCK), np.float32)
    imaginary = np.empty((half + 1, BLOCK), np.float32)
    magnitude = np.empty((half + 1, BLOCK), np.float32)
    for first in range(0, out.shape[0], BLOCK):
        n = min(BLOCK, out.shape[0] - first)
        _load(samples, first * hop, hop, window, order, n, real, imaginary)
        _transform(cosines, sines, n, real, imaginary)
        _magnitudes(cosines, sines, n, real, imaginary, magnitude)
        if squared:
            for row in range(half + 1):
                for i in range(n):
                    magnitude[row, i] *= magnitude[row, i]
        _bands(magnitude, first_bins, weights, offset, n, out[first : first + n])


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _load(
    samples: Floats, at: int, hop: int, window: Floats, order: Ints, n: int, real: Floats, imaginary: Floats
) -> None:
    """Weigh and place samples: even ones as real parts, odd ones as imaginary parts, zeros past the window."""
    for row in range(order.size):
        even = 2 * order[row]
        for part, index in ((real, even), (imaginary, even + 1)):
            if index < window.size:
                weight = window[index]
                for i in range(n):
                    part[row, i] = samples[at + i * hop + index] * weight
            else:
                part[row, :n] = 0.0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _transform(cosines: Floats, sines: Floats, n: int, real: Floats, imaginary: Floats) -> None:
    """Complex radix-2 transform of fft / 2 points, decimation in time, in place."""
    half = cosines.size
    span = 1
    while span < half:
        for j in range(span):
            c, s = cosines[j * (half // span)], sines[j * (half // span)]
            for low in range(j, half, 2 * span):
                re0, re1 = real[low], real[low + span]
                im0, im1 = imaginary[low], imaginary[low + span]
                for i in range(n):
                    re = re1[i] * c - im1[i] * s
                    im = re1[i] * s + im1[i] * c
                    re1[i] = re0[i] - re
                    im1[i] = im0[i] - im
                    re0[i] += re
                    im0[i] += im
        span *= 2


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _magnitudes(cosines: Floats, sines: Floats, n: int, real: Floats, imaginary: Floats, magnitude: Floats) -> None:
    """Untangle the transforms of even and odd samples into the spectrum of all; bin fft / 2 comes from bin 0."""
    half = cosines.size
    one_half = np.float32(0.5)
    for i in range(n):
        magnitude[0, i] = abs(real[0, i] + imaginary[0, i])
        magnitude[half, i] = abs(real[0, i] - imaginary[0, i])
    for k in range(1, half):
        c, s = cosines[k], sines[k]
        re0, re1, im0, im1 = real[k], real[half - k], imaginary[k], imaginary[half - k]
        out = magnitude[k]
        for i in range(n):
            even_re = one_half * (re0[i] + re1[i])
            even_im = one_half * (im0[i] - im1[i])
            odd_re = one_half * (im0[i] + im1[i])
            odd_im = one_half * (re1[i] - re0[i])
            re = even_re + odd_re * c - odd_im * s
            im = even_im + odd_re * s + odd_im * c
            out[i] = np.sqrt(re * re + im * im)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _bands(magnitude: Floats, first_bins: Ints, weights: Floats, offset: np.float32, n: int, out: Floats) -> None:
    sums = np.empty(BLOCK, np.float32)
    for band in range(first_bins.size):
        sums[:n] = offset
        for j in range(weights.shape[1]):
            weight = weights[band, j]
            if weight == 0.0:
                break
            bin = magnitude[first_bins[band] + j]
            for i in range(n):
                sums[i] += weight * bin[i]
        for i in range(n):
            out[i, band] = sums[i]
