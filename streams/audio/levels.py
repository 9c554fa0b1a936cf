"""Measures the level and spectrogram of a session's audio for listeners, each sample once.

It measures segments of half a second; every window is a whole number of them. No score depends on the result.
"""

import math
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

# Not `np.fft`, which imports it at its first use: a confined worker cannot read files.
from numpy import fft

from streams.audio.logmel import mel_matrix
from streams.models.manifest import LogMel
from streams.models.protocol import Floats
from topics.ports.live import BANDS, COLUMN_MS, HIGH_HZ, LOW_HZ, SILENCE_DB, STEPS_PER_DB, WindowSound

SEGMENT_MS: Final = 500
#: Segments remembered: more than one step of a file or a delayed stream holds.
KEPT: Final = 80
#: Below this rate (Hz) a column has too few samples for its bands.
LOWEST_RATE: Final = 4000

#: Sum of squares, peak and number of samples.
Segment = tuple[float, float, int]


class Measures(msgspec.Struct, frozen=True, array_like=True):
    """Segments and their columns by number, sent from one meter to another."""

    segments: dict[int, Segment]
    columns: dict[int, bytes]


class SoundMeter:
    """Level and, while `draws` is set, spectrogram of one session's audio. One thread feeds it; any thread reads."""

    def __init__(self) -> None:
        self.draws = False
        #: Segments fed since the last call of `fresh`.
        self._fresh: set[int] = set()
        self._rate = 0
        #: Position after the last sample taken.
        self._at = 0
        #: By number, oldest first.
        self._segments: dict[int, Segment] = {}
        self._columns: dict[int, bytes] = {}
        #: Whether the current segment was measured from its beginning, and its samples after its last column.
        self._whole = False
        self._rest = np.empty(0, np.float32)

    def feed(self, rate: int, at: int, samples: Floats) -> None:
        """Take samples, float32[n] of `rate` Hz, at position `at`; skip those already taken."""
        if rate != self._rate:
            self._segments.clear()
            self._columns.clear()
        if rate != self._rate or at > self._at:
            self._rate, self._at, self._whole = rate, at, False
        samples = samples[self._at - at :]
        while len(samples):
            number = self._at * 1000 // (rate * SEGMENT_MS)
            begin, end = (_position(number + more, rate) for more in (0, 1))
            if self._at >= end:  # The division rounded down.
                number, begin, end = number + 1, end, _position(number + 2, rate)
            piece, samples = samples[: end - self._at], samples[end - self._at :]
            if self._at == begin:
                self._begin(number)
            if self._whole:
                self._take(number, piece)
            self._at += len(piece)

    def fresh(self) -> Measures:
        """Return the changes since the last call."""
        numbers, self._fresh = self._fresh, set()
        return Measures(
            {number: self._segments[number] for number in numbers if number in self._segments},
            {number: self._columns[number] for number in numbers if number in self._columns},
        )

    def absorb(self, measures: Measures) -> None:
        self._segments.update(measures.segments)
        self._columns.update(measures.columns)
        for known in (self._segments, self._columns):
            while len(known) > KEPT:
                del known[next(iter(known))]

    def window(self, first: int, count: int, drawn: int) -> WindowSound | None:
        """Return the levels of `count` segments starting at `first`, with the columns of the last `drawn` segments.

        Return None if the first is unknown; later ones may be missing at a stream's end.
        """
        rms = self.level(first, count)
        if rms is None:
            return None
        peak = max(self._segments[number][1] for number in range(first, first + count) if number in self._segments)
        last = range(first + count - drawn, first + count)
        columns = b"".join([self._columns.get(number, b"") for number in last]) if last[0] in self._columns else b""
        return WindowSound(rms, _decibels(peak, 20), columns)

    def level(self, first: int, count: int) -> float | None:
        """Return the `rms` that `window` returns."""
        known = [segment for number in range(first, first + count) if (segment := self._segments.get(number))]
        if first not in self._segments:
            return None
        energy, samples = sum([segment[0] for segment in known]), sum([segment[2] for segment in known])
        return _decibels(energy / samples, 10)

    def _begin(self, number: int) -> None:
        self._whole, self._rest = True, np.empty(0, np.float32)
        for known in (self._segments, self._columns):
            if len(known) >= KEPT:
                del known[next(iter(known))]
        if self.draws and self._rate >= LOWEST_RATE:
            self._columns[number] = b""

    def _take(self, number: int, samples: Floats) -> None:
        self._fresh.add(number)
        energy, peak, count = self._segments.get(number, (0.0, 0.0, 0))
        energy += float(np.dot(samples, samples))
        peak = max(peak, float(samples.max()), -float(samples.min()))
        self._segments[number] = energy, peak, count + len(samples)
        if number in self._columns:
            self._draw(number, samples)

    def _draw(self, number: int, samples: Floats) -> None:
        width = self._rate * COLUMN_MS // 1000
        joined = np.concatenate((self._rest, samples))
        count = len(joined) // width
        self._rest = joined[count * width :]
        if count:
            self._columns[number] += mel_columns(joined[: count * width].reshape(count, width), self._rate)


def mel_columns(frames: Floats, rate: int) -> bytes:
    """Return the power of each band of float32[n, samples], u8[n, BANDS], in steps below a full-scale sine."""
    taper, matrix = _front(frames.shape[1], rate)
    spectrum = np.abs(fft.rfft(frames * taper)[:, : len(matrix)]) ** 2
    decibels = 10.0 * np.log10(spectrum @ matrix + 1e-13)
    columns: bytes = np.clip(255.0 + STEPS_PER_DB * decibels, 0, 255).astype(np.uint8).tobytes()
    return columns


@lru_cache(maxsize=8)
def _front(width: int, rate: int) -> tuple[Floats, Floats]:
    """Return a frame's taper, float32[width], and the weights of the bins in use, float32[bins, BANDS]."""
    taper = np.hanning(width + 1)[:-1]
    taper *= 2.0 / taper.sum()
    front = LogMel(
        rate, 1, BANDS, width, width, width, LOW_HZ, min(HIGH_HZ, rate / 2), 0.0, power=2, mel_slopes="hertz"
    )
    matrix = mel_matrix(front).T
    bins = int(np.flatnonzero(matrix.any(axis=1))[-1]) + 1
    return taper.astype(np.float32), matrix[:bins].astype(np.float32)


def _position(segment: int, rate: int) -> int:
    return segment * SEGMENT_MS * rate // 1000


def _decibels(value: float, factor: int) -> float:
    """Return a power (factor 10) or an amplitude (20) in dB, rounded to a tenth."""
    return SILENCE_DB if value <= 0 else max(SILENCE_DB, round(factor * math.log10(value), 1))
