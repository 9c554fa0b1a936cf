"""Models in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from streams.models import heads, manifest, runtime
from streams.models.manifest import LogMel, Manifest, Waveform
from streams.models.protocol import Floats
from topics.errors import EngineError


class OnnxSoundEngine:
    """One graph with one input (a batch of patches), an output of class scores and maybe one of embeddings.

    The input is float32 [n, samples], [n, 1, samples] or [samples] for a waveform, [n, frames, bands] or
    [n, 1, frames, bands] for log-mel (the last two axes may be the other way round, see `LogMel.layout`); any axis may
    be dynamic. The patch goes in as a batch of one: on a CPU larger batches gain nothing, and a batch's size would be
    a second thing that scores depend on.
    """

    def __init__(self, directory: Path) -> None:
        """Load the model in `directory`.

        Raises:
            EngineError: manifest, graph or heads are missing, damaged, or do not fit; one line naming the fault.
        """
        self.manifest: Manifest = manifest.read(directory)
        path = directory / self.manifest.graph.file
        self._session = runtime.open_session(path, self.manifest.graph.sha256)
        self._input, self._shape = _fitting_input(path, self._session, self.manifest.input)
        self._turned = isinstance(self.manifest.input, LogMel) and self.manifest.input.layout == "bands-frames"
        self._outputs = _named_outputs(path, self._session, self.manifest)
        self._sigmoid = self.manifest.output.activation == "sigmoid"
        self._heads = None
        if self.manifest.heads is not None:
            self._heads = heads.read(directory, self.manifest.heads)
        self._try(path)
        # Classes and heads in a row, all of a tag side by side, and where each tag begins: one gather and one
        # segmented maximum per patch.
        classes = len(self.manifest.classes)
        columns = [[*tag.classes, *([] if tag.head is None else [classes + tag.head])] for tag in self.manifest.tags]
        self._columns = np.array([column for tag in columns for column in tag], np.intp)
        self._starts = np.cumsum([0, *(len(tag) for tag in columns[:-1])])

    def scores(self, patch: Floats) -> Floats:
        """Score one patch; see `protocol.Engine`."""
        found, *embeddings = self._run(self._outputs if self._heads is not None else self._outputs[:1], patch)
        if self._heads is not None:
            found = np.concatenate((found, heads.scores(self._heads, embeddings[0])))
        tags: Floats = np.maximum.reduceat(found.take(self._columns), self._starts)
        return tags

    def embed(self, patch: Floats) -> tuple[Floats, Floats]:
        """Return (float32[classes] in 0..1, float32[dimension]) of one patch: what the graph gives of it.

        Raises:
            EngineError: the model gives no embedding, or failed on the patch.
        """
        if len(self._outputs) < 2:
            raise EngineError(f"{self.manifest.model_id} gives no embedding")
        classes, embedding = self._run(self._outputs, patch)
        return classes, embedding

    def _run(self, outputs: list[str], patch: Floats) -> list[Floats]:
        """Return the outputs, each as one row, the first as scores."""
        given = np.ascontiguousarray(patch.T) if self._turned else patch
        try:
            found = self._session.run(outputs, {self._input: given.reshape(self._shape)})
            rows: list[Floats] = [output.ravel() for output in found]
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"{self.manifest.model_id}: {runtime.first_line(error)}") from error
        if self._sigmoid:
            rows[0] = heads.logistic(rows[0])
        return rows

    def _try(self, path: Path) -> None:
        """Run the graph once, since what it declares may leave open what it gives, and compare with the manifest."""
        given, known = self.manifest.input, self.manifest
        patch = np.zeros((given.frames, given.bands) if isinstance(given, LogMel) else given.samples, np.float32)
        classes, *embeddings = self._run(self._outputs, patch)
        for found in (classes, *embeddings):
            if found.dtype != np.float32:
                raise EngineError(f"{path}: gives {found.dtype}, expected float32")
        if classes.size != len(known.classes):
            raise EngineError(f"{path}: gives {classes.size} scores, but the manifest has {len(known.classes)} classes")
        if self._heads is None:
            return
        count, dimension = self._heads.shape[0], self._heads.shape[1] - 1
        if embeddings[0].size != dimension:
            raise EngineError(f"{path}: gives embeddings of {embeddings[0].size}, but its heads are for {dimension}")
        for tag in known.tags:
            if tag.head is not None and not 0 <= tag.head < count:
                raise EngineError(f"{path.parent}: tag {tag.name} asks for head {tag.head}, but there are {count}")


def _fitting_input(
    path: Path, session: onnxruntime.InferenceSession, given: LogMel | Waveform
) -> tuple[str, tuple[int, ...]]:
    """Return the name of the graph's input and the shape of a batch of one, once graph and manifest agree on it."""
    if isinstance(given, LogMel):
        patch = (given.frames, given.bands) if given.layout == "frames-bands" else (given.bands, given.frames)
        shapes = [(1, *patch), (1, 1, *patch)]
    else:
        shapes = [(given.samples,), (1, given.samples), (1, 1, given.samples)]
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise EngineError(f"{path}: expected one input, not {len(inputs)}")
    name, kind, declared = inputs[0].name, inputs[0].type, inputs[0].shape
    for shape in shapes:
        if kind == "tensor(float)" and _fits(declared, shape):
            return name, shape
    raise EngineError(f"{path}: takes {kind} {declared}, expected tensor(float) {list(shapes[-2])}")


def _fits(declared: list[int | str | None], shape: tuple[int, ...]) -> bool:
    """Tell whether a shape is one of those declared: axes of any size have a name there, or nothing."""
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(not isinstance(axis, int) or axis == size for axis, size in pairs)


def _named_outputs(path: Path, session: onnxruntime.InferenceSession, known: Manifest) -> list[str]:
    """Return the names of the outputs that are read: the class scores, and the embedding where there is one."""
    given = [output.name for output in session.get_outputs()]
    if not given:
        raise EngineError(f"{path}: has no output")
    wanted = [known.output.scores or given[0]]
    if known.output.embedding is not None:
        wanted.append(known.output.embedding)
    for name in wanted:
        if name not in given:
            raise EngineError(f"{path}: has no output {name}, only {', '.join(given)}")
    return wanted
