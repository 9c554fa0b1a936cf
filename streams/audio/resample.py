"""Sample-rate conversion whose outputs depend only on the inputs around them.

Output sample k lies at t = k * rate_in / rate_out on the input's axis, an exact fraction. It is a weighted sum of the
inputs around t (`filters`), those before 0 and after the end being zeros. The terms are added in an order that depends
on nothing but the two rates. So however the input is cut, and wherever an analysis begins again, the same k gives the
same bits; a resampler with a running state could not promise that.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streams.audio.filters import MULTIPLE, Filter, design
from streams.models.protocol import Floats

#: Outputs of one filter that are summed side by side.
BLOCK = 256


def resample(samples: Floats, rate_in: int, rate_out: int) -> Floats:
    """Return float32[n] of `rate_in` Hz at `rate_out` Hz."""
    resampler = Resampler(rate_in, rate_out)
    return np.concatenate((resampler.feed(samples), resampler.finish()))


class Resampler:
    """Converts a stream that is fed block by block. One thread at a time."""

    def __init__(self, rate_in: int, rate_out: int, *, at: int = 0, first: int = 0) -> None:
        """Begin with input sample `at` and output sample `first`, both counted from the stream's beginning.

        Raises:
            ValueError: output `first` depends on inputs before `at`.
        """
        self.filter = design(rate_in, rate_out)
        self.position = at
        self.next = first
        if at > self.filter.first_input(first):
            raise ValueError(f"output {first} needs input {self.filter.first_input(first)}, but it begins at {at}")
        # Inputs before `at` are zero or not needed; inputs before the origin are not kept.
        self._origin = self._oldest()
        self._buffer = np.zeros(max(0, at - self._origin), np.float32)

    def feed(self, samples: Floats) -> Floats:
        """Take the next inputs, float32[n], and return the outputs that can be computed now, from `next` on."""
        if self.filter.up == self.filter.down and self._origin == self.position:
            self.position = self.next = self._origin = self.position + len(samples)
            return samples
        skipped = max(0, self._origin - self.position)
        self.position += len(samples)
        if skipped < len(samples):
            self._buffer = np.concatenate((self._buffer, samples[skipped:]))
        return self._emit(self.filter.ready_outputs(self.position))

    def finish(self) -> Floats:
        """Return the outputs that are left, with zeros after the end of the input."""
        missing = max(0, self.position - self._origin) + self.filter.after - len(self._buffer)
        self._buffer = np.concatenate((self._buffer, np.zeros(missing, np.float32)))
        return self._emit(self.filter.output_length(self.position))

    def _oldest(self) -> int:
        """Return the position from which inputs are kept.

        Unless filters are mixed it is a multiple of `down`, because `_polyphase` takes inputs in rows of that length.
        """
        oldest = self.next * self.filter.down // self.filter.up - self.filter.before
        return oldest if self.filter.mixed else oldest // self.filter.down * self.filter.down

    def _emit(self, end: int) -> Floats:
        if end <= self.next:
            return np.empty(0, np.float32)
        outputs = convolve(self.filter, self._buffer, self._origin, self.next, end)
        self.next = end
        origin = self._oldest()
        self._buffer = self._buffer[origin - self._origin :]
        self._origin = origin
        return outputs


def convolve(filter: Filter, inputs: Floats, origin: int, first: int, end: int) -> Floats:
    """Return outputs [first, end) from inputs that begin at `origin`, a multiple of `down` unless filters are mixed."""
    if filter.up == filter.down:
        return inputs[first - origin : end - origin].copy()
    out = np.empty(end - first, np.float32)
    # Rounded-up filters read past the last input, with weight zero.
    if filter.mixed:
        padded = np.concatenate((inputs, np.zeros(MULTIPLE, np.float32)))
        _mix(padded, origin, filter.table, filter.up, filter.down, filter.before, first, out)
    else:
        periods = -(-(len(inputs) + MULTIPLE) // filter.down)
        padded = np.zeros(periods * filter.down, np.float32)
        padded[: len(inputs)] = inputs
        columns = np.ascontiguousarray(padded.reshape(periods, filter.down).T)
        _polyphase(columns, origin // filter.down, filter.table, filter.up, filter.before, first, out)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _polyphase(columns: Floats, origin: int, table: Floats, up: int, before: int, first: int, out: Floats) -> None:
    """Compute outputs of one filter side by side: k and k + up use the same weights, on inputs `down` apart.

    `columns[r, m]` is input (origin + m) * down + r, so side by side means along a row. Each sum runs over the taps in
    order.
    """
    down, taps = columns.shape[0], table.shape[1]
    sums = np.empty(BLOCK, np.float32)
    for phase in range(up):
        weights = table[phase * down % up]
        oldest = phase * down // up - before
        last = -((phase - first - out.size) // up)
        for period in range(-((phase - first) // up), last, BLOCK):
            n = min(BLOCK, last - period)
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
def _mix(inputs: Floats, origin: int, table: Floats, up: int, down: int, before: int, first: int, out: Floats) -> None:
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
