"""Log-mel patches of recordings: random crops for training, and the grid of windows for evaluation."""

from typing import Final

import numpy as np

from infra.lab.converters.front_end import FRONT_END
from infra.teaching.operating_points import Indices
from streams.audio import logmel
from streams.models.protocol import Floats

#: Samples between windows (0.5 s), and between possible crop starts (0.05 s).
HOP: Final = 8_000
STEP: Final = 800
#: Crops start where the level is at most this far below the loudest, because labels are wrong in pauses.
ACTIVE_DB: Final = 25.0
#: Playback speed of crops, drawn log-uniformly.
SPEEDS: Final = (0.85, 1.18)


def window_grid(samples: Floats) -> Floats:
    """Return float32[windows, 96, 64]: a window every 0.5 s that lies wholly in the samples, at least one."""
    short = FRONT_END.samples - len(samples)
    rows = logmel.log_mel_frames(FRONT_END, np.pad(samples, (0, max(0, short))))
    step = HOP // FRONT_END.hop
    return np.stack([rows[at : at + FRONT_END.frames] for at in range(0, len(rows) - FRONT_END.frames + 1, step)])


def crops(samples: Floats, count: int, random: np.random.Generator) -> Floats:
    """Return float32[count, 96, 64], crops of active places at random speeds."""
    longest = int(FRONT_END.samples * SPEEDS[1]) + 1
    samples = np.pad(samples, (0, max(0, longest - len(samples))))
    starts = active_starts(samples, longest)
    patches = np.empty((count, FRONT_END.frames, FRONT_END.bands), np.float32)
    for patch in patches:
        speed = np.exp(random.uniform(*np.log(SPEEDS)))
        at = min(int(random.choice(starts) + random.integers(STEP)), len(samples) - longest)
        times = at + speed * np.arange(FRONT_END.samples)
        patch[:] = logmel.log_mel_frames(
            FRONT_END, np.interp(times, np.arange(len(samples)), samples).astype(np.float32)
        )
    return patches


def active_starts(samples: Floats, length: int) -> Indices:
    """Return the sample indices where crops of `length` samples may start, those near the loudest level."""
    energy = np.concatenate(([0.0], np.cumsum(samples.astype(np.float64) ** 2)))
    starts = np.arange(0, len(samples) - length + 1, STEP)
    power = energy[starts + length] - energy[starts]
    return starts[power >= power.max() * 10.0 ** (-ACTIVE_DB / 10.0)]
