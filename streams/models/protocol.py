"""What the analysis asks of a model."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from streams.models.manifest import Manifest

Floats = npt.NDArray[np.float32]


class SoundEngine(Protocol):
    """A loaded sound-event model; threads may share it."""

    @property
    def manifest(self) -> Manifest:
        """What the model takes and knows."""
        ...

    def scores(self, patch: Floats) -> Floats:
        """Score one patch (float32[frames, bands] or float32[samples], as the manifest says).

        Returns:
            float32[tags] in 0..1: of each tag, the maximum over its classes. The same patch gives the same bits.

        Raises:
            EngineError: the model failed on the patch.
        """
        ...
