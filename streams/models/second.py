"""The second model of a bundle: scores contexts, and combines the scores of both models."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from streams.models import heads, runtime
from streams.models.manifest import Manifest, SecondModel
from streams.models.protocol import Floats
from streams.models.tag_columns import TagColumns
from topics.errors import EngineError

#: Probabilities keep this distance from 0 and 1, so that no model outvotes the other by being certain.
EDGE: Final = np.float32(1e-4)


class SecondEngine:
    """Hears contexts. Any thread.

    It runs one look at a time: a graph with dynamic int8 weights scales its activations over the whole batch, so
    batching would change the scores.
    """

    def __init__(self, directory: Path, manifest: Manifest, second: SecondModel) -> None:
        """Load the second model of the bundle in `directory`, described by `manifest`.

        Raises:
            EngineError: the graph or heads are missing, damaged, or do not fit; a message of one line.
        """
        path = directory / second.graph.file
        self._second = second
        self._session = runtime.open_session(path, second.graph.sha256)
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise EngineError(f"{path}: expected one input, not {len(inputs)}")
        self._input = inputs[0].name
        self._outputs = [second.output.scores or self._session.get_outputs()[0].name, second.output.embedding or ""]
        self._heads = [heads.read(directory, context.heads) for context in (second.stream, second.recording)]
        by_class = [tag for tag, about in enumerate(second.tags) if about.classes]
        by_head = [tag for tag, about in enumerate(second.tags) if about.head is not None]
        self._by_class, self._by_head = np.array(by_class, np.intp), np.array(by_head, np.intp)
        self._columns = TagColumns([second.tags[tag].classes for tag in by_class])
        self._rows = np.array([second.tags[tag].head for tag in by_head], np.intp)
        count = np.zeros(len(second.tags), np.float32)
        np.add.at(count, self._by_class, 1)
        np.add.at(count, self._by_head, 1)
        self._count = np.maximum(count, 1)
        alone = np.array([not tag.classes and tag.head is None for tag in manifest.tags])
        self._weights: Floats = np.where(alone, 1.0, second.weight * (count > 0)).astype(np.float32)
        self._unheard = self._weights * logit(np.zeros(1, np.float32))
        for weights in self._heads:
            if self._rows.size and self._rows.max() >= len(weights):
                raise EngineError(f"{directory}: a tag asks for head {self._rows.max()}, but there are {len(weights)}")
        for recording in (False, True):
            self.hear(np.zeros((second.context(recording).frames, second.input.bands), np.float32), recording)

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        scores, embedding = self.embed(frames)
        try:
            by_class = self._columns.highest(scores)
            by_head = heads.logits(self._heads[recording], embedding)[self._rows]
        except (IndexError, ValueError) as error:
            raise EngineError(f"{self._second.name}: {error}") from error
        found = np.zeros(len(self._second.tags), np.float32)
        found[self._by_class] = logit(by_class)
        found[self._by_head] += by_head
        found /= self._count
        return found, embedding

    def embed(self, frames: Floats) -> tuple[Floats, Floats]:
        """Return the class scores, float32[classes] in 0..1, and the embedding, float32[dimension], of a context.

        Raises:
            EngineError: the model failed.
        """
        name = self._second.name
        rows = np.ascontiguousarray(frames.T if self._second.input.layout == "bands-frames" else frames)
        try:
            scores, embedding = (array[0] for array in self._session.run(self._outputs, {self._input: rows[None]}))
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"{name}: {runtime.first_line(error)}") from error
        if scores.shape != (self._second.classes,):
            raise EngineError(f"{name}: gives scores {scores.shape}, expected {self._second.classes}")
        if self._second.dimension and embedding.shape != (self._second.dimension,):
            raise EngineError(f"{name}: gives an embedding {embedding.shape}, expected {self._second.dimension}")
        return scores, embedding

    def combine(self, scores: Floats, context: Callable[[], Floats]) -> Floats:
        heard = self._weights * context() if scores.max() >= self._second.gate else self._unheard
        logits: Floats = heard + (np.float32(1.0) - self._weights) * logit(scores)
        return heads.logistic(logits)


def logit(scores: Floats) -> Floats:
    """Return ln(p / (1 - p)) of each score, kept away from 0 and 1."""
    one = np.float32(1.0)
    inside = np.minimum(np.maximum(scores, EDGE), one - EDGE)
    return np.log(inside / (one - inside))
