"""Amplifies distant voices to the level of near ones before speech detection."""

from typing import Final

import numpy as np

from streams.models.protocol import Floats

#: Root mean square to which soft recordings are amplified, in dB full scale, and the maximum gain: beyond it there is
#: hardly more than noise.
LEVEL_DB: Final = -23.0
MOST_DB: Final = 40.0


def amplified(samples: Floats, factor: float) -> Floats:
    """Multiply float32[n] by a factor, limited to -1..1."""
    if factor == 1.0:
        return samples
    limited: Floats = np.clip(samples * np.float32(factor), np.float32(-1.0), np.float32(1.0))
    return limited


def levelled(samples: Floats) -> Floats:
    """Amplify a whole recording, float32[n], to the level."""
    meter = Meter()
    meter.add(samples)
    return amplified(samples, meter.gain)


class Meter:
    """Sums the power of a recording, block by block. One thread at a time."""

    def __init__(self) -> None:
        self._power = 0.0
        self._samples = 0

    def add(self, samples: Floats) -> Floats:
        """Add float32[n], and return it."""
        self._power += float(np.dot(samples, samples))
        self._samples += len(samples)
        return samples

    @property
    def gain(self) -> float:
        """The gain as a factor, at least 1."""
        if self._power <= 0.0:
            return 1.0
        needed_db = LEVEL_DB - 10.0 * np.log10(self._power / self._samples)
        return float(10.0 ** (np.clip(needed_db, 0.0, MOST_DB) / 20.0))
