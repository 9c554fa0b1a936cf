"""Log-mel frames, each computed alone: the same samples give the same bits however many frames are asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from numba import njit

from streams.engines.manifest import LogMel
from streams.engines.protocol import Floats

Ints = npt.NDArray[np.intp]

#: Frames that are transformed side by side; vector instructions then run over frames and never mix them.
BLOCK: Final = 64


class Tables(msgspec.Struct, frozen=True):
    """What the kernel needs of a front end, worked out once."""

    #: float32[window], periodic Hann.
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
def tables(front: LogMel) -> Tables:
    """Return the tables of a front end."""
    half = front.fft // 2
    bits = half.bit_length() - 1
    order = np.zeros(half, np.intp)
    for bit in range(bits):
        order |= ((np.arange(half) >> bit) & 1) << (bits - 1 - bit)
    angles = 2.0 * np.pi * np.arange(half) / front.fft
    hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(front.window) / front.window)
    matrix = mel_matrix(front)
    first_bins = np.argmax(matrix > 0, axis=1)
    weights = np.zeros((front.bands, int((matrix > 0).sum(axis=1).max()) + 1))
    for band, first in enumerate(first_bins):
        row = matrix[band, first : first + weights.shape[1]]
        weights[band, : len(row)] = row
    return Tables(
        hann.astype(np.float32),
        order,
        np.cos(angles).astype(np.float32),
        -np.sin(angles).astype(np.float32),
        first_bins,
        weights.astype(np.float32),
    )


def mel_matrix(front: LogMel) -> npt.NDArray[np.float64]:
    """Return float64[bands, fft / 2 + 1], triangles of height one on the HTK mel scale, 1127 ln(1 + f / 700).

    Triangles are linear in mel, not in Hz, and the bin at 0 Hz counts nowhere, as in TensorFlow's
    `linear_to_mel_weight_matrix`.
    """
    bins = _mel(np.arange(front.fft // 2 + 1) * front.sample_rate / front.fft)
    edges = np.linspace(_mel(np.array(front.low_hz)), _mel(np.array(front.high_hz)), front.bands + 2)
    low, centre, high = edges[:-2, np.newaxis], edges[1:-1, np.newaxis], edges[2:, np.newaxis]
    matrix = np.clip(np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)), 0.0, None)
    matrix[:, 0] = 0.0
    return matrix


def _mel(hertz: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    scaled: npt.NDArray[np.float64] = 1127.0 * np.log1p(hertz / 700.0)
    return scaled


def frames(front: LogMel, samples: Floats) -> Floats:
    """Return float32[n, bands], the frames that lie wholly in `samples`, frame j beginning at sample j * hop."""
    count = max(0, (len(samples) - front.window) // front.hop + 1)
    out = np.empty((count, front.bands), np.float32)
    t = tables(front)
    offset = np.float32(front.offset)
    _mel_frames(samples, front.hop, t.window, t.order, t.cosines, t.sines, t.first_bins, t.weights, offset, out)
    return np.log(out, out=out)


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
