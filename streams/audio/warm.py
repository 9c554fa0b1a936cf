"""Compiles the kernels, or loads them from numba's cache, so that the first chunk need not wait."""

from typing import Final

import numpy as np

from streams.audio.analysis import Analysis
from streams.audio.framing import Framer
from streams.models.manifest import LogMel
from streams.models.protocol import SoundEngine
from topics.geometry import SESSIONS

#: One rate for each way of resampling: none, one filter per position, mixed filters.
RATES: Final = (16_000, 44_100, 44_101)
#: YAMNet's front end; all others run the same kernels.
FRONT: Final = LogMel(16_000, 96, 64, 400, 160, 512, 125.0, 7500.0, 0.001)


def warm_kernels() -> None:
    """Run every kernel once, on silence."""
    for rate in RATES:
        framer = Framer(FRONT, SESSIONS.hop_ms, rate)
        framer.feed(np.zeros(2 * rate, np.float32))
        framer.patch(0)


def warm(engine: SoundEngine) -> None:
    """Run every kernel and the engine's models once, on silence."""
    for rate in RATES:
        Analysis(engine, SESSIONS, rate).feed(np.zeros(2 * rate, np.float32))
