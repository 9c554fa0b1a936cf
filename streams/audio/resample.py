"""Sample-rate conversion whose outputs depend only on the inputs around them.

Output sample k lies at t = k * rate_in / rate_out on the input's axis, an exact fraction. It is a weighted sum of the
inputs around t (`filters`), with zeros before 0 and after the end. Only the two rates determine the order of addition.
So the same k gives the same bits however the input is cut and wherever an analysis resumes; a resampler with running
state could not promise that.
"""

import numpy as np

from streams.audio.filters import MULTIPLE, Filter, design
from streams.models.protocol import Floats


def resample(samples: Floats, rate_in: int, rate_out: int) -> Floats:
    """Convert float32[n] from `rate_in` Hz to `rate_out` Hz."""
    resampler = Resampler(rate_in, rate_out)
    return np.concatenate((resampler.feed(samples), resampler.finish()))


class Resampler:
    """Converts a stream fed block by block. One thread at a time."""

    def __init__(self, rate_in: int, rate_out: int, *, at: int = 0, first: int = 0) -> None:
        """Begin at input sample `at` and output sample `first`, both counted from the stream's beginning.

        Raises:
            ValueError: output `first` depends on inputs before `at`.
        """
        self.filter = design(rate_in, rate_out)
        self.position = at
        self.next = first
        if at > self.filter.first_input(first):
            raise ValueError(f"output {first} needs input {self.filter.first_input(first)}, but it begins at {at}")
        # Inputs before `at` are zero or not needed; inputs before the origin are dropped.
        self._origin = self._oldest()
        self._buffer = np.zeros(max(0, at - self._origin), np.float32)

    def feed(self, samples: Floats) -> Floats:
        """Take the next inputs, float32[n], and return the outputs that are now computable, from `next` on."""
        if self.filter.up == self.filter.down and self._origin == self.position:
            self.position = self.next = self._origin = self.position + len(samples)
            return samples
        skipped = max(0, self._origin - self.position)
        self.position += len(samples)
        if skipped < len(samples):
            self._buffer = np.concatenate((self._buffer, samples[skipped:]))
        return self._emit(self.filter.ready_outputs(self.position))

    def finish(self) -> Floats:
        """Return the remaining outputs, with zeros after the end of the input."""
        missing = max(0, self.position - self._origin) + self.filter.after - len(self._buffer)
        self._buffer = np.concatenate((self._buffer, np.zeros(missing, np.float32)))
        return self._emit(self.filter.output_length(self.position))

    def _oldest(self) -> int:
        """Return the position from which inputs are kept.

        A multiple of `down` unless filters are mixed, because `polyphase` takes inputs in rows of that length.
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
    """Return outputs [first, end) of inputs that begin at `origin`, a multiple of `down` unless filters are mixed."""
    if filter.up == filter.down:
        return inputs[first - origin : end - origin].copy()
    from streams.audio import kernels

    out = np.empty(end - first, np.float32)
    # Padded filters read past the last input, with weight zero.
    if filter.mixed:
        padded = np.concatenate((inputs, np.zeros(MULTIPLE, np.float32)))
        kernels.mix(padded, origin, filter.table, filter.up, filter.down, filter.before, first, out)
    else:
        periods = -(-(len(inputs) + MULTIPLE) // filter.down)
        padded = np.zeros(periods * filter.down, np.float32)
        padded[: len(inputs)] = inputs
        columns = np.ascontiguousarray(padded.reshape(periods, filter.down).T)
        kernels.polyphase(columns, origin // filter.down, filter.table, filter.up, filter.before, first, out)
    return out
