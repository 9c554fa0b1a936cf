"""Negatives for a new tag: the user's recordings without the sound, and the background of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from infra.teaching import background
from infra.teaching.background import ContextKind
from infra.teaching.heads import EmbeddedWindows
from infra.teaching.operating_points import Doubles, Indices
from streams.models.manifest import Manifest
from streams.models.protocol import Floats
from topics.errors import BadRequest
from topics.geometry import SESSIONS

#: Folds of the cross-check.
FOLDS: Final = 5
#: Label of windows of the user's recordings.
USER_LABEL: Final = ""


class Negatives(msgspec.Struct, frozen=True):
    """Windows without the sound: adjacent for each recording, and the user's recordings first."""

    #: float32[windows, dimension].
    embeddings: Floats
    #: Recording of each window, ascending, and the fold it is held out in: intp[windows].
    recording: Indices
    fold: Indices
    #: The sound in the recording, str[windows]; `USER_LABEL` if unknown.
    label: npt.NDArray[np.str_]
    #: Milliseconds that one window stands for: of the user's recordings, and of the background.
    own_ms: int = SESSIONS.hop_ms
    background_ms: int = SESSIONS.window_ms

    @property
    def user_windows(self) -> int:
        return int((self.label == USER_LABEL).sum())

    @property
    def minutes(self) -> tuple[float, float]:
        """Minutes of the user's recordings, and of the background, whose windows do not overlap."""
        behind = len(self.label) - self.user_windows
        return self.user_windows * self.own_ms / 60_000, behind * self.background_ms / 60_000

    @property
    def weights(self) -> Doubles:
        """Weights of windows, float64[windows]: the user's recordings weigh as much as the whole background."""
        is_own = self.label == USER_LABEL
        weights = np.where(is_own, 1.0 / max(1, self.user_windows), 1.0 / max(1, len(is_own) - self.user_windows))
        shares: Doubles = weights / weights.sum()
        return shares

    def without(self, labels: Sequence[str]) -> Negatives:
        """Return the negatives without the recordings of these labels."""
        mask = ~np.isin(self.label, labels)
        arrays = (self.embeddings[mask], self.recording[mask], self.fold[mask], self.label[mask])
        return Negatives(*arrays, self.own_ms, self.background_ms)


def gather(manifest: Manifest, own_windows: Sequence[EmbeddedWindows], context: ContextKind = "") -> Negatives:
    """Combine the user's recordings with the background of the model, if it has one.

    With `context`, windows are contexts of the second model.

    Raises:
        BadRequest: there is neither.
    """
    behind = background.read(manifest, context)
    own_ms, background_ms = SESSIONS.hop_ms, SESSIONS.window_ms
    if context and manifest.second is not None:
        own_ms = manifest.second.context(context == "recording").hop_ms
        background_ms = own_ms * background.STRIDES[context]
    if behind is None and not own_windows:
        raise BadRequest(f"{manifest.model_id} brings no other sounds to learn against: give --negatives")
    recording = np.repeat(np.arange(len(own_windows)), [len(one.embeddings) for one in own_windows])
    embeddings, folds = [one.embeddings for one in own_windows], folds_of(len(own_windows))[recording]
    if behind is None:
        labels = np.full(len(recording), USER_LABEL)
        return Negatives(np.concatenate(embeddings), recording, folds, labels, own_ms, background_ms)
    return Negatives(
        np.concatenate((*embeddings, behind.embeddings)),
        np.concatenate((recording, len(own_windows) + behind.recording)),
        np.concatenate((folds, behind.source % FOLDS)),
        np.concatenate((np.full(len(recording), USER_LABEL), np.array(behind.labels)[behind.recording])),
        own_ms,
        background_ms,
    )


def folds_of(recordings: int) -> Indices:
    """Return the fold of each recording; neighbours share one, because they are often cut from the same take."""
    return np.arange(recordings) * FOLDS // max(1, recordings)
