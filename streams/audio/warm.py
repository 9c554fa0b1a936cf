"""Compiles, or loads from numba's cache, everything that a first chunk would otherwise wait for."""

from __future__ import annotations

from typing import Final

import numpy as np

from streams.audio.session import Analysis
from streams.models.protocol import SoundEngine
from topics.geometry import SESSIONS

#: One rate for each way of resampling: none, one filter per position, mixed filters.
RATES: Final = (16_000, 44_100, 44_101)


def warm(engine: SoundEngine) -> None:
    """Run every kernel and the engine once, on silence."""
    for rate in RATES:
        Analysis(engine, SESSIONS, rate).feed(np.zeros(2 * rate, np.float32))
