"""Stored scores: one byte per tag, so that readers apply sensitivity and filters.

A tag's margin is m = logit(score) - logit(point), where point is the tag's operating point. The stored byte is
q = 128 + floor(m / 0.07), clamped to 0..255 (margins of -8.96 to 8.96). The step is a tenth of a sensitivity step
(0.7 logit), and zero is a whole step, so "m >= 0.7 s" is exactly "q >= 128 + 10 s": thresholds lose no precision.
The displayed probability is the sigmoid of the step's middle; it is at least 0.5 exactly when the tag is reported.
"""

import math
from typing import Final

STEP: Final = 0.07
ZERO: Final = 128
STEPS_PER_SENSITIVITY: Final = 10
#: From this probability on, a sentence states a sound as a fact. The model card says how many of such events are right.
CERTAIN: Final = 0.9


def threshold(sensitivity: int) -> int:
    """Return the lowest stored value that is reported at `sensitivity` (-2..2; positive reports less)."""
    return ZERO + STEPS_PER_SENSITIVITY * sensitivity


def probability(stored: int, sensitivity: int = 0) -> float:
    """Return p in [0, 1], rounded to four places, for a stored value (0..255) at a sensitivity (-2..2)."""
    margin = STEP * (stored - threshold(sensitivity) + 0.5)
    return round(1.0 / (1.0 + math.exp(-margin)), 4)
