"""Maps the columns of a score array to tags."""

from collections.abc import Sequence

import numpy as np

from streams.models.protocol import Floats


class TagColumns:
    """Scores each tag by the maximum of its columns. Any thread."""

    def __init__(self, columns: Sequence[Sequence[int]]) -> None:
        # All columns side by side, and each tag's start: one gather and one segmented maximum per array.
        self._columns = np.array([column for tag in columns for column in tag], np.intp)
        self._starts = np.cumsum([0, *(len(tag) for tag in columns[:-1])])

    def highest(self, scores: Floats) -> Floats:
        """Reduce float32[..., columns] to float32[..., tags]."""
        return np.maximum.reduceat(scores.take(self._columns, axis=-1), self._starts, axis=-1)
