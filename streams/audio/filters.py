"""The low-pass filters of the resampler: Kaiser-windowed sincs, one per position between two samples.

Cut-off at 0.95 of the lower Nyquist frequency, `ZEROS` samples of the lower rate to each side. By Kaiser's formulas
(Oppenheim and Schafer, Discrete-Time Signal Processing, 7.5.3), 70 dB of attenuation give a transition band 0.18 of
the lower Nyquist wide: flat up to 0.86, aliases above 0.96 (7.7 of 8 kHz, where YAMNet has no mel band).
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
#: With more positions (44,056 Hz has 2,000), the table is coarser and neighbouring filters are mixed.
MAX_POSITIONS: Final = 640
#: Filters per sample of the lower rate if neighbours are mixed; linear mixing then errs by less than 1e-6.
MIXED_PHASES: Final = 4096
#: Filter lengths are padded with zeros to a multiple of this, for the kernels' unrolled loops. Numba compiles it into
#: `kernels` and its cache does not notice a change here: touch that file too.
MULTIPLE: Final = 16


class Filter(msgspec.Struct, frozen=True):
    """The inputs and weights of output k: inputs floor(t) - before .. floor(t) + after, where t = k * down / up.

    If not `mixed`, row p of the table is the filter for the fraction p / up of t. If `mixed`, row p belongs to the
    fraction p / (rows - 1), and fractions in between mix two rows. A table takes at most 3 MB.
    """

    up: int
    down: int
    before: int
    after: int
    #: float32[rows, taps]; tap j weights input floor(t) - before + j.
    table: Floats
    mixed: bool

    def first_input(self, output: int) -> int:
        """Return the first input that an output depends on, at least 0."""
        return max(0, output * self.down // self.up - self.before)

    def inputs_for(self, output: int) -> int:
        """Return how many inputs, from the beginning, an output needs."""
        return output * self.down // self.up + self.after + 1

    def ready_outputs(self, inputs: int) -> int:
        """Return how many outputs are computable from the first `inputs` inputs."""
        return max(0, -((self.after - inputs) * self.up // self.down))

    def output_length(self, inputs: int) -> int:
        """Return how many outputs lie before the end of `inputs` inputs."""
        return -(-inputs * self.up // self.down)


@lru_cache(maxsize=16)
def design(rate_in: int, rate_out: int) -> Filter:
    """Return the filter between two rates in Hz; the identity for equal rates."""
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
    # Each filter sums to one, so that constants stay constant.
    weights /= weights.sum(axis=1, keepdims=True)
    table = np.zeros((len(fractions), -(-2 * radius // MULTIPLE) * MULTIPLE), np.float32)
    table[:, : 2 * radius] = weights
    return Filter(up, down, radius - 1, radius, table, mixed)


def _kaiser(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.i0(BETA * np.sqrt(1.0 - x * x)) / np.i0(BETA)
