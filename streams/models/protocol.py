"""The protocol of a sound-event model, and the type of its arrays."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streams.models.manifest import Manifest

Floats = npt.NDArray[np.float32]


class LookEngine(Protocol):
    """The loaded second model of a bundle; threads may share it."""

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        """Return the logit of each tag, float32[tags], in a look, float32[frames, bands], and the look's embedding."""
        ...

    def combine(self, scores: Floats, look: Callable[[], Floats]) -> Floats:
        """Return a window's scores, float32[tags], from the first model's and, if need be, the logits of its look."""
        ...


class SoundEngine(Protocol):
    """A loaded sound-event model; threads may share it."""

    #: The model's input and tags.
    manifest: Manifest

    @property
    def second(self) -> LookEngine | None:
        """The model that has a say in the score of each window, if there is one."""
        return None

    def scores(self, patch: Floats) -> Floats:
        """Score one patch (float32[frames, bands] or float32[samples], as the manifest says).

        Returns:
            float32[tags] in 0..1: the maximum over the classes of each tag. The same patch gives the same bits.

        Raises:
            EngineError: the model failed on the patch.
        """
        ...

    def scores_of(self, patches: Sequence[Floats]) -> Sequence[Floats]:
        """Score several patches: the same bits as one by one, in less time if the model can.

        Raises:
            EngineError: the model failed on one of them.
        """
        return [self.scores(patch) for patch in patches]
