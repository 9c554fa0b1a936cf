"""Which columns of an array of scores make each tag."""

from collections.abc import Sequence

import numpy as np

from streams.models.protocol import Floats


class TagColumns:
    """The columns of each tag, which has the highest of them. Any thread."""

    def __init__(self, columns: Sequence[Sequence[int]]) -> None:
        # Side by side, and where each tag begins: one gather and one segmented maximum for each array.
        self._columns = np.array([column for tag in columns for column in tag], np.intp)
        self._starts = np.cumsum([0, *(len(tag) for tag in columns[:-1])])

    def highest(self, scores: Floats) -> Floats:
        """Return float32[..., tags] of float32[..., columns]."""
        tags: Floats = np.maximum.reduceat(scores.take(self._columns, axis=-1), self._starts, axis=-1)
        return tags
