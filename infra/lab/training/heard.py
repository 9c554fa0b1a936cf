"""Outputs of a bundle's two models for recordings, before heads and points, which are chosen on them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import onnxruntime

from infra.lab.converters import convert_ced
from infra.lab.evaluation.metrics import any_by_recording
from infra.lab.evaluation.recordings import Recording
from infra.lab.evaluation.sound import ScoredRecordings, join_scored, score_recordings
from infra.lab.training.embeddings import ContextRecorder
from infra.teaching.operating_points import Bools, Indices
from streams.models import heads
from streams.models.manifest import SecondModel, SecondTag
from streams.models.packing import pack
from streams.models.protocol import Floats, SoundEngine
from streams.models.second import logit
from streams.models.tag_columns import TagColumns


class HeardRecordings(msgspec.Struct, frozen=True):
    """Windows of recordings, and their contexts."""

    #: The recordings and the truth; its scores are unused.
    scored: ScoredRecordings
    #: The first model's scores, float32[windows, tags], and the number of each window's context, intp[windows].
    first: Floats
    context: Indices
    #: The second model's scores, float32[contexts, classes], and embeddings, float32[contexts, dimension].
    classes: Floats
    embeddings: Floats

    @property
    def begins(self) -> Indices:
        """The first window of each context: intp[contexts]."""
        return np.flatnonzero(np.diff(self.context, prepend=-1))

    @property
    def context_recording(self) -> Indices:
        """The number of the recording of each context: intp[contexts]."""
        return self.scored.truth.recording[self.begins]

    @property
    def context_audible(self) -> Bools:
        """Whether a window of the context is audible: bool[contexts]."""
        return any_by_recording(self.scored.truth.audible, self.context)

    def at(self, context_logits: Floats, weight: float, gate: float) -> ScoredRecordings:
        """Return the recordings with combined scores.

        Args:
            context_logits: The second model's logit of each tag, float32[contexts, tags].
            weight: Of the second model.
            gate: Minimum score of some tag of the first model for a window to use its context.
        """
        heard = np.where(
            self.first.max(axis=1, keepdims=True) >= gate, context_logits[self.context], logit(np.zeros(1, np.float32))
        )
        logits = np.float32(weight) * heard + np.float32(1.0 - weight) * logit(self.first)
        stored = np.frombuffer(
            pack(heads.logistic(logits), self.scored.manifest.points(self.scored.recording)), np.uint8
        )
        return msgspec.structs.replace(self.scored, stored=stored.reshape(self.first.shape))


def tag_logits(heard: HeardRecordings, tags: Sequence[SecondTag], head_logits: Floats) -> Floats:
    """Return the second model's logit of each tag, float32[contexts, tags], as `SecondEngine.logits` does.

    If `head_logits`, float32[contexts, heads], is NaN, the class alone scores the tag.
    """
    found = logit(TagColumns([tag.classes for tag in tags]).highest(heard.classes))
    for column, tag in enumerate(tags):
        if tag.head is not None:
            head = head_logits[:, tag.head]
            found[:, column] = np.where(np.isnan(head), found[:, column], (found[:, column] + head) / 2)
    return found


def join_heard(parts: Sequence[HeardRecordings]) -> HeardRecordings:
    """Merge parts, in order."""
    before = np.cumsum([0, *(len(part.classes) for part in parts[:-1])])
    return HeardRecordings(
        join_scored([part.scored for part in parts]),
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.context + first for part, first in zip(parts, before, strict=True)]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.embeddings for part in parts]),
    )


def hear(
    first: SoundEngine,
    session: onnxruntime.InferenceSession,
    second: SecondModel,
    material: Sequence[Recording],
    recording: bool,
) -> HeardRecordings:
    """Cut recordings by the service's own analysis, as a `recording` or a stream, and record both models.

    Raises:
        BadRequest: No recording decodes.
        EngineError: The first model failed.
    """
    outputs = [second.output.scores, second.output.embedding]

    def embed(frames: Floats) -> tuple[Floats, Floats]:
        scores, embedding = session.run(outputs, {convert_ced.INPUT: frames.T[np.newaxis]})
        return scores[0], embedding[0]

    recorder = ContextRecorder(msgspec.structs.replace(first.manifest, second=second), first, embed)
    # Windows and contexts are recorded in order, so use one thread.
    scored = score_recordings(recorder, material, workers=1, recording=recording, hears_silence=True)
    windows, contexts = zip(*recorder.windows, strict=True)
    classes, embeddings = zip(*recorder.contexts, strict=True)
    return HeardRecordings(
        scored, np.stack(windows), np.array(contexts, np.intp), np.stack(classes), np.stack(embeddings)
    )
