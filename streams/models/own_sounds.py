"""Own sounds of a project, and the embeddings they are learnt from: extra columns after the scores of a window.

An embedding is stored in 255 steps per number. Own sounds are scored on the stored form, so that a head scores past
windows exactly like new ones.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.models import heads
from streams.models.manifest import Manifest
from streams.models.packing import pack
from streams.models.protocol import Floats
from topics.hearing import Hearing

#: Hardly any number in an embedding is larger.
LARGEST: Final = 10.0
STEPS: Final = 127
#: Score from which an own sound is reported; its head's bias is shifted to match.
POINT: Final = 0.5

Stored = npt.NDArray[np.int8]


def quantise(embedding: Floats) -> Stored:
    """Convert embeddings to the bytes that are stored."""
    stored: Stored = np.rint(np.clip(embedding / LARGEST, -1.0, 1.0) * STEPS).astype(np.int8)
    return stored


def dequantise(stored: Stored) -> Floats:
    """Convert stored embeddings to numbers, the inverse of `quantise` except for rounding."""
    return stored.astype(np.float32) * np.float32(LARGEST / STEPS)


def score(head: Floats, stored: Stored) -> Floats:
    """Return the scores, float32[n], of a head, float32[dimension + 1], for stored embeddings, int8[n, dimension].

    Uses sums instead of a matrix product, whose order of addition may depend on the number of rows: so each embedding
    scores the same alone. An embedding of zeros stands for a context that was not heard and scores 0.
    """
    scores = heads.logistic((dequantise(stored) * head[:-1]).sum(axis=1) + head[-1])
    return np.where(stored.any(axis=1), scores, np.float32(0))


class OwnColumns:
    """Computes the columns of a window after the scores of the model's tags. Any thread."""

    def __init__(self, hearing: Hearing, dimension: int, recording: bool) -> None:
        """Use the heads for recordings or for streams; embeddings have `dimension` numbers."""
        self.sounds = len(hearing.sounds)
        self._keeps = hearing.choices.keep_embeddings
        weights = np.frombuffer(hearing.heads, "<f4").reshape(2, self.sounds, dimension + 1)
        self._heads: Floats = weights[int(recording)].astype(np.float32)
        self._nothing = np.zeros(self.sounds + dimension * self._keeps, np.float32)

    def of(self, embedding: Floats | None) -> Floats:
        """Return a window's scores of own sounds and, if kept, its stored embedding: float32[columns].

        All are zeros if no context was heard; no real embedding is.
        """
        if embedding is None:
            return self._nothing
        stored = quantise(embedding)
        columns = [score(head, stored[None]) for head in self._heads]
        return np.concatenate((*columns, stored.astype(np.float32))) if self._keeps else np.concatenate(columns)


def own_columns(model: Manifest, hearing: Hearing, recording: bool) -> OwnColumns | None:
    wanted = model.second is not None and (hearing.sounds or hearing.choices.keep_embeddings)
    return OwnColumns(hearing, _dimension(model), recording) if wanted else None


def packed_columns(rows: Floats, points: Sequence[float]) -> tuple[bytes, bytes]:
    """Return the packed scores of windows, float32[windows, columns], and the embeddings kept with them.

    Raises:
        EngineError: a score is not a number.
    """
    return pack(rows[:, : len(points)], points), rows[:, len(points) :].astype(np.int8).tobytes()


def points(model: Manifest, hearing: Hearing, recording: bool) -> tuple[float, ...]:
    """Return the score in (0, 1) from which each tag, and then each own sound, is reported."""
    return (*model.points(recording), *[POINT] * len(hearing.sounds))


def widths(model: Manifest, hearing: Hearing) -> tuple[int, int]:
    """Return the number of a window's scores, and the length of the embedding kept with it."""
    return len(model.tags) + len(hearing.sounds), _dimension(model) * hearing.choices.keep_embeddings


def _dimension(model: Manifest) -> int:
    return 0 if model.second is None else model.second.dimension
