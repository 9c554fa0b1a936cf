"""Sound-event models in ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime

from streams.models import heads, manifest, runtime
from streams.models.manifest import LogMel, Manifest, Waveform
from streams.models.protocol import Floats
from streams.models.second import SecondEngine
from streams.models.tag_columns import TagColumns
from topics.errors import EngineError

#: Batch sizes, largest first: four saves most of what batching can save, and larger ones take more memory.
BATCHES: Final = (4, 2, 1)


class OnnxSoundEngine:
    """Runs one graph with one input (a batch of patches), an output of class scores and possibly one of embeddings.

    Any thread. The input is float32 [n, samples], [n, 1, samples] or [samples] for a waveform, [n, frames, bands] or
    [n, 1, frames, bands] for log-mel (`LogMel.layout` may swap the last two axes); any axis may be dynamic. Patches are
    batched only if that changes no bit of their scores: ONNX Runtime's kernels depend on shapes and not on values, so
    one trial per size is enough.
    """

    def __init__(self, directory: Path) -> None:
        """Load the model in `directory`.

        Raises:
            EngineError: manifest, graph or heads are missing, damaged, or do not fit; a message of one line.
        """
        self.manifest: Manifest = manifest.read(directory)
        path = directory / self.manifest.graph.file
        self._session = runtime.open_session(path, self.manifest.graph.sha256)
        self._input, self._shape = _checked_input(path, self._session, self.manifest.input)
        self._swaps_axes = isinstance(self.manifest.input, LogMel) and self.manifest.input.layout == "bands-frames"
        self._outputs = _checked_outputs(path, self._session, self.manifest)
        self._sigmoid = self.manifest.output.activation == "sigmoid"
        self._heads = None
        if self.manifest.heads is not None:
            self._heads = heads.read(directory, self.manifest.heads)
        self._check_outputs(path)
        second = self.manifest.second
        self.second = None if second is None else SecondEngine(directory, self.manifest, second)
        classes = len(self.manifest.classes)
        columns = [[*tag.classes, *([] if tag.head is None else [classes + tag.head])] for tag in self.manifest.tags]
        # For tags scored only by the second model: a column of zeros after all others.
        nothing = classes + (0 if self._heads is None else len(self._heads))
        self._lacks = not all(columns)
        self._columns = TagColumns([column or [nothing] for column in columns])
        self._batches = tuple(size for size in BATCHES if size == 1 or self._may_run(size))

    def scores(self, patch: Floats) -> Floats:
        # A tag's score is the maximum over its classes and its head.
        tags: Floats = self._score((patch,))[0]
        return tags

    def scores_of(self, patches: Sequence[Floats]) -> Sequence[Floats]:
        tags: list[Floats] = []
        while len(tags) < len(patches):
            size = next(size for size in self._batches if size <= len(patches) - len(tags))
            tags.extend(self._score(patches[len(tags) : len(tags) + size]))
        return tags

    def _score(self, batch: Sequence[Floats]) -> Floats:
        scores, *embeddings = self._run(self._outputs if self._heads is not None else self._outputs[:1], *batch)
        if self._heads is not None:
            # One by one: a matrix product may add in another order than a matrix-vector product.
            by_heads = [heads.scores(self._heads, embedding) for embedding in embeddings[0]]
            scores = np.concatenate((scores, by_heads), axis=1)
        if self._lacks:
            scores = np.pad(scores, ((0, 0), (0, 1)))
        return self._columns.highest(scores)

    def _may_run(self, size: int) -> bool:
        """Return whether the graph accepts batches of a size and scores each patch as it does alone."""
        patches = np.random.default_rng(size).standard_normal((size, *self.manifest.input.shape), np.float32)
        try:
            together = self._run(self._outputs, *patches)
        except EngineError:
            return False
        alone = zip(*(self._run(self._outputs, patch) for patch in patches), strict=True)
        return all(np.array_equal(batch, np.concatenate(rows)) for batch, rows in zip(together, alone, strict=True))

    def embed(self, patch: Floats) -> tuple[Floats, Floats]:
        """Return the class scores, float32[classes] in 0..1, and the embedding, float32[dimension], of one patch.

        Raises:
            EngineError: the model has no embedding, or failed.
        """
        if len(self._outputs) < 2:
            raise EngineError(f"{self.manifest.model_id} gives no embedding")
        classes, embedding = self._run(self._outputs, patch)
        return classes[0], embedding[0]

    def _run(self, outputs: list[str], *patches: Floats) -> list[Floats]:
        """Return the outputs, float32[n, ...] with a row per patch; the first as scores in 0..1."""
        rows = [patch.T if self._swaps_axes else patch for patch in patches]
        try:
            batch = np.ascontiguousarray(rows[0] if len(rows) == 1 else np.stack(rows))
            shape = self._shape if len(rows) == 1 else (len(rows), *self._shape[1:])
            arrays = self._session.run(outputs, {self._input: batch.reshape(shape)})
            flat: list[Floats] = [array.reshape(len(rows), -1) for array in arrays]
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"{self.manifest.model_id}: {runtime.first_line(error)}") from error
        if self._sigmoid:
            flat[0] = heads.logistic(flat[0])
        return flat

    def _check_outputs(self, path: Path) -> None:
        """Run the graph once and compare its outputs with the manifest, since declared shapes may be dynamic."""
        manifest = self.manifest
        patch = np.zeros(manifest.input.shape, np.float32)
        classes, *embeddings = (array[0] for array in self._run(self._outputs, patch))
        for output in (classes, *embeddings):
            if output.dtype != np.float32:
                raise EngineError(f"{path}: gives {output.dtype}, expected float32")
        expected = len(manifest.classes)
        if classes.size != expected:
            raise EngineError(f"{path}: gives {classes.size} scores, but the manifest has {expected} classes")
        if self._heads is None:
            return
        count, dimension = self._heads.shape[0], self._heads.shape[1] - 1
        if embeddings[0].size != dimension:
            raise EngineError(f"{path}: gives embeddings of {embeddings[0].size}, but its heads are for {dimension}")
        for tag in manifest.tags:
            if tag.head is not None and not 0 <= tag.head < count:
                raise EngineError(f"{path.parent}: tag {tag.name} asks for head {tag.head}, but there are {count}")


def _checked_input(
    path: Path, session: onnxruntime.InferenceSession, front: LogMel | Waveform
) -> tuple[str, tuple[int, ...]]:
    """Check the graph's input against the manifest; return its name and the shape of a batch of one."""
    if isinstance(front, LogMel):
        patch = (front.frames, front.bands) if front.layout == "frames-bands" else (front.bands, front.frames)
        shapes = [(1, *patch), (1, 1, *patch)]
    else:
        shapes = [(front.samples,), (1, front.samples), (1, 1, front.samples)]
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise EngineError(f"{path}: expected one input, not {len(inputs)}")
    name, kind, declared = inputs[0].name, inputs[0].type, inputs[0].shape
    for shape in shapes:
        if kind == "tensor(float)" and _fits(declared, shape):
            return name, shape
    raise EngineError(f"{path}: takes {kind} {declared}, expected tensor(float) {list(shapes[-2])}")


def _fits(declared: list[int | str | None], shape: tuple[int, ...]) -> bool:
    """Return whether a shape fits the declared one, in which a dynamic axis is a name or None."""
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(not isinstance(axis, int) or axis == size for axis, size in pairs)


def _checked_outputs(path: Path, session: onnxruntime.InferenceSession, manifest: Manifest) -> list[str]:
    """Return the names of the outputs to read: the class scores, and the embedding if there is one."""
    outputs = [output.name for output in session.get_outputs()]
    if not outputs:
        raise EngineError(f"{path}: has no output")
    names = [manifest.output.scores or outputs[0]]
    if manifest.output.embedding is not None:
        names.append(manifest.output.embedding)
    for name in names:
        if name not in outputs:
            raise EngineError(f"{path}: has no output {name}, only {', '.join(outputs)}")
    return names
