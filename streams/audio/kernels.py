"""The front end's loops, compiled by numba: each output is computed by itself, in an order that no cut changes.

Import this only where the loops run: numba takes 40 MB and a sixth of a second, and the event loop's process needs
none of it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from streams.audio.filters import MULTIPLE
from streams.models.protocol import Floats

Ints = npt.NDArray[np.intp]

#: Frames transformed side by side: vector instructions run across frames and never mix them.
FRAMES: Final = 64
#: Outputs of one filter summed side by side.
OUTPUTS: Final = 256


@njit(cache=True, nogil=True, error_model="numpy")
def append_frames(
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
    """Fill `joined` with `begun` and `samples`, and `out` with `frames` and the mel bands of the joined samples."""
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
    real = np.empty((half + 1, FRAMES), np.float32)
    imaginary = np.empty((half + 1, FRAMES), np.float32)
    magnitude = np.empty((half + 1, FRAMES), np.float32)
    for first in range(0, out.shape[0], FRAMES):
        n = min(FRAMES, out.shape[0] - first)
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
    """Weight and place samples: even ones as real parts, odd ones as imaginary parts, zeros past the window."""
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
    """Run a complex radix-2 transform of fft / 2 points in place, decimation in time."""
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
    """Combine the transforms of even and odd samples into the whole spectrum; bin fft / 2 comes from bin 0."""
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
    sums = np.empty(FRAMES, np.float32)
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


@njit(cache=True, nogil=True, error_model="numpy")
def polyphase(columns: Floats, origin: int, table: Floats, up: int, before: int, first: int, out: Floats) -> None:
    """Compute outputs of one filter side by side: k and k + up use the same weights, on inputs `down` apart.

    `columns[r, m]` is input (origin + m) * down + r, so side by side means along a row. Each sum runs over the taps in
    order.
    """
    down, taps = columns.shape[0], table.shape[1]
    sums = np.empty(OUTPUTS, np.float32)
    for phase in range(up):
        weights = table[phase * down % up]
        oldest = phase * down // up - before
        last = -((phase - first - out.size) // up)
        for period in range(-((phase - first) // up), last, OUTPUTS):
            n = min(OUTPUTS, last - period)
            sums[:n] = 0.0
            row = oldest % down
            column = oldest // down + period - origin
            for tap in range(0, taps, 4):
                x0 = columns[row, column : column + n]
                row, column = (row + 1, column) if row + 1 < down else (0, column + 1)
                x1 = columns[row, column : column + n]
                row, column = (row + 1, column) if row + 1 < down else (0, column + 1)
                x2 = columns[row, column : column + n]
                row, column = (row + 1, column) if row + 1 < down else (0, column + 1)
                x3 = columns[row, column : column + n]
                row, column = (row + 1, column) if row + 1 < down else (0, column + 1)
                w0, w1, w2, w3 = weights[tap], weights[tap + 1], weights[tap + 2], weights[tap + 3]
                for i in range(n):
                    sums[i] = (((sums[i] + w0 * x0[i]) + w1 * x1[i]) + w2 * x2[i]) + w3 * x3[i]
            at = period * up + phase - first
            for i in range(n):
                out[at + i * up] = sums[i]


@njit(cache=True, nogil=True, error_model="numpy")
def mix(inputs: Floats, origin: int, table: Floats, up: int, down: int, before: int, first: int, out: Floats) -> None:
    """Compute each output with a filter mixed from two rows of the table; partial sums of every MULTIPLE-th tap."""
    rows, taps = table.shape[0] - 1, table.shape[1]
    sums = np.empty(MULTIPLE, np.float32)
    for i in range(out.size):
        whole = (first + i) * down // up
        position = ((first + i) * down - whole * up) * rows
        row = position // up
        share = np.float32((position - row * up) / up)
        low, high = table[row], table[row + 1]
        at = whole - before - origin
        sums[:] = 0.0
        for tap in range(0, taps, MULTIPLE):
            w0, w1 = low[tap : tap + MULTIPLE], high[tap : tap + MULTIPLE]
            x = inputs[at + tap : at + tap + MULTIPLE]
            for lane in range(MULTIPLE):
                sums[lane] += (w0[lane] + share * (w1[lane] - w0[lane])) * x[lane]
        width = MULTIPLE // 2
        while width > 0:
            for lane in range(width):
                sums[lane] += sums[lane + width]
            width //= 2
        out[i] = sums[0]
