"""The low-pass filters of the resampler: Kaiser-windowed sincs, one per position between two samples.

Cut-off at 0.95 of the lower Nyquist frequency, `ZEROS` samples of the lower rate to each side. By Kaiser's formulas
(Oppenheim and Schafer, Discrete-Time Signal Processing, 7.5.3) 70 dB of attenuation make a transition 0.18 of the lower
Nyquist wide: flat up to 0.86; what folds back lands above 0.96 (7.7 kHz of 8, where YAMNet has no mel band).
"""

import math
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats

#: Half the length of a filter, in samples of the lower rate.
ZEROS: Final = 24
ATTENUATION_DB: Final = 70.0
BETA: Final = 0.1102 * (ATTENUATION_DB - 8.7)
CUTOFF: Final = 0.95
#: With more positions than this (44,056 Hz has 2,000) the table is coarser, and neighbouring filters are mixed.
MAX_POSITIONS: Final = 640
#: Filters per sample of the lower rate when neighbours are mixed; linear mixing then errs by less than 1e-6.
MIXED_PHASES: Final = 4096
#: Filter lengths are rounded up to this with zeros, for the kernels' unrolled loops. It is compiled into the kernels of
#: `resample`, whose cache does not notice a change here: touch that file too.
MULTIPLE: Final = 16


class Filter(msgspec.Struct, frozen=True):
    """The inputs and weights of output k: inputs floor(t) - before .. floor(t) + after, where t = k * down / up.

    With `mixed` unset row p of the table is the filter for the fraction p / up of t; otherwise row p belongs to the
    fraction p / (rows - 1), and the filter for a fraction in between is mixed from two rows. A table has at most 3 MB.
    """

    up: int
    down: int
    before: int
    after: int
    #: float32[rows, taps]; tap j weighs input floor(t) - before + j.
    table: Floats
    mixed: bool

    def first_input(self, output: int) -> int:
        """Return the first input that an output depends on; not less than 0."""
        return max(0, output * self.down // self.up - self.before)

    def inputs_for(self, output: int) -> int:
        """Return how many inputs, counted from the beginning, an output needs."""
        return output * self.down // self.up + self.after + 1

    def ready_outputs(self, inputs: int) -> int:
        """Return how many outputs can be computed from that many inputs."""
        return max(0, -((self.after - inputs) * self.up // self.down))

    def output_length(self, inputs: int) -> int:
        """Return how many outputs a stream of this many inputs has: those before its end."""
        return -(-inputs * self.up // self.down)


@lru_cache(maxsize=16)
def design(rate_in: int, rate_out: int) -> Filter:
    """Return the filter between two rates in Hz; for equal rates one that changes nothing."""
    if rate_in == rate_out:
        return Filter(1, 1, 0, 0, np.ones((1, 1), np.float32), mixed=False)
    common = math.gcd(rate_in, rate_out)
    up, down = rate_out // common, rate_in // common
    scale = max(1.0, down / up)
    mixed = up > MAX_POSITIONS
    positions = math.ceil(MIXED_PHASES / scale) if mixed else up
    fractions = np.arange(positions + mixed) / positions
    radius = math.ceil(ZEROS * scale)
    distance = np.arange(-radius + 1, radius + 1) - fractions[:, np.newaxis]
    weights = np.sinc(distance * CUTOFF / scale) * _kaiser(distance / radius)
    # Each filter adds up to one, so that a constant stays that constant.
    weights /= weights.sum(axis=1, keepdims=True)
    table = np.zeros((len(fractions), -(-2 * radius // MULTIPLE) * MULTIPLE), np.float32)
    table[:, : 2 * radius] = weights
    return Filter(up, down, radius - 1, radius, table, mixed)


def _kaiser(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    window: npt.NDArray[np.float64] = np.i0(BETA * np.sqrt(1.0 - x * x)) / np.i0(BETA)
    return window
