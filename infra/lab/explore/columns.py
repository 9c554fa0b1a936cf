"""A spectrogram of any length in bounded memory: pairs of columns are merged when there are too many."""

from typing import Final

import numpy as np

from streams.models.protocol import Floats

#: Columns in a picture; up to twice as many are kept.
MOST: Final = 2048


class Columns:
    """Collects frames; a column is the maximum of `span` frames, so that short sounds stay visible."""

    def __init__(self, bands: int) -> None:
        self.span = 1
        self._columns = np.empty((0, bands), np.float32)
        self._rest = self._columns

    def add(self, frames: Floats) -> None:
        """Add frames, float32[n, bands]."""
        frames = np.concatenate((self._rest, frames))
        whole = len(frames) // self.span * self.span
        self._rest = frames[whole:].copy()
        self._columns = np.concatenate((self._columns, _merged(frames[:whole], self.span)))
        # Only whole pairs are merged, so that each column covers equally many frames.
        while len(self._columns) > 2 * MOST and len(self._columns) % 2 == 0:
            self._columns = _merged(self._columns, 2)
            self.span *= 2

    def finish(self) -> Floats:
        """Return float32[columns, bands]; the last column is the maximum of the remaining frames."""
        if len(self._rest):
            self._columns = np.concatenate((self._columns, self._rest.max(axis=0, keepdims=True)))
        return self._columns


def _merged(frames: Floats, span: int) -> Floats:
    merged: Floats = frames.reshape(-1, span, frames.shape[1]).max(axis=1)
    return merged
