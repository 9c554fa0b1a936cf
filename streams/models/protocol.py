"""The protocol of sound-event models, and the type of their arrays."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streams.models.manifest import Manifest

Floats = npt.NDArray[np.float32]


class ContextEngine(Protocol):
    """The loaded second model of a bundle; threads may share it."""

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        """Return each tag's logit, float32[tags], and the embedding of a context, float32[frames, bands].

        Raises:
            EngineError: the model failed.
        """

    def combine(self, scores: Floats, context: Callable[[], Floats]) -> Floats:
        """Combine a window's scores from the first model, float32[tags] in 0..1, with the logits of `context()`.

        Call `context` only if the scores pass the gate; otherwise the second model does not run.
        """


class SoundEngine(Protocol):
    """A loaded sound-event model; threads may share it."""

    manifest: Manifest

    @property
    def second(self) -> ContextEngine | None:
        """The model that contributes to each window's score, if there is one."""
        return None

    def scores(self, patch: Floats) -> Floats:
        """Score one patch, float32[frames, bands] or float32[samples], depending on the manifest.

        Returns:
            float32[tags] in 0..1: the maximum over the classes of each tag. The same patch gives the same bits.

        Raises:
            EngineError: the model failed on the patch.
        """

    def scores_of(self, patches: Sequence[Floats]) -> Sequence[Floats]:
        """Score several patches, with the same bits as one by one, but faster if the model supports it.

        Raises:
            EngineError: the model failed on a patch.
        """
        return [self.scores(patch) for patch in patches]
