"""Speaker embeddings: unit vectors with similar directions for utterances of the same voice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streams.models import runtime
from streams.models.protocol import Floats
from streams.voice import speaker_manifest as manifest
from streams.voice.fbank import fbank
from streams.voice.speaker_manifest import FbankInput, SpeakerManifest
from topics.errors import AudioError, EngineError

if TYPE_CHECKING:
    import onnxruntime


class SpeakerEngine(Protocol):
    """A loaded speaker-embedding model; threads may share it."""

    @property
    def manifest(self) -> SpeakerManifest:
        """The model's input, output and thresholds."""

    def embed(self, samples: Floats) -> Floats:
        """Return the unit vector, float32[dimension], of float32[n] in -1..1 at the manifest's sample rate.

        The dot product of two vectors is their cosine. The same samples give the same bits.

        Raises:
            AudioError: there are fewer samples than the model needs.
            EngineError: the model failed, or returned a vector without a direction.
        """


class OnnxSpeakerEngine:
    """Runs one ONNX graph from samples or filter-bank frames to a vector. Any thread.

    `FbankInput` describes the inputs of known models: float32[n, samples], float32[n, frames, bands] or
    float32[n, bands, frames] and, for a graph with a second input, the number of frames, int64[n]. It reads the first
    output of shape [n, dimension], normalised or not.
    """

    def __init__(self, directory: Path) -> None:
        """Load the model in `directory`.

        Raises:
            EngineError: manifest or graph are missing, damaged, or do not fit; a message of one line.
        """
        self.manifest: SpeakerManifest = manifest.read(directory)
        path = directory / self.manifest.graph.file
        self._session = runtime.open_session(path, self.manifest.graph.sha256)
        self._inputs = _checked_inputs(path, self._session, self.manifest)
        self._output = _checked_output(path, self._session, self.manifest)

    def embed(self, samples: Floats) -> Floats:
        front = self.manifest.input
        if len(samples) < front.min_samples:
            seconds = front.min_samples / front.sample_rate
            raise AudioError(f"{len(samples) / front.sample_rate:.2f} s of audio, a voice needs {seconds:.2f} s")
        pieces = np.array_split(samples, -(-len(samples) // front.max_samples))
        return self._unit(np.add.reduce([self._unit(self._run(piece)) for piece in pieces]))

    def _run(self, samples: Floats) -> Floats:
        features = samples
        if isinstance(self.manifest.input, FbankInput):
            features = fbank(self.manifest.input, samples)
        frames = len(features)
        if isinstance(self.manifest.input, FbankInput) and self.manifest.input.layout == "bands-frames":
            features = np.ascontiguousarray(features.T)
        feed = dict(zip(self._inputs, (features[np.newaxis], np.array([frames], np.int64)), strict=False))
        try:
            vector: Floats = self._session.run([self._output], feed)[0][0]
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"{self.manifest.model_id}: {runtime.first_line(error)}") from error
        return vector

    def _unit(self, vector: Floats) -> Floats:
        length = np.linalg.norm(vector)
        if not (np.isfinite(length) and length > 0):
            raise EngineError(f"{self.manifest.model_id}: gave a vector of length {length}")
        return vector / length


def _checked_inputs(path: Path, session: onnxruntime.InferenceSession, manifest: SpeakerManifest) -> list[str]:
    """Check the inputs against the manifest and return their names; a dynamic axis fits any length."""
    front = manifest.input
    expected: list[int | None] = [None, None]
    if isinstance(front, FbankInput):
        expected = [None, None, front.bands] if front.layout == "frames-bands" else [None, front.bands, None]
    inputs = session.get_inputs()
    first, *rest = inputs
    fits = len(first.shape) == len(expected) and all(
        axis == size or (not isinstance(axis, int) or (index == 0 and axis == 1))
        for index, (axis, size) in enumerate(zip(first.shape, expected, strict=True))
    )
    if first.type != "tensor(float)" or not fits or len(rest) > 1 or any(r.type != "tensor(int64)" for r in rest):
        shapes = ", ".join(f"{item.type} {item.shape}" for item in inputs)
        raise EngineError(f"{path}: takes {shapes}; expected float {['any' if w is None else w for w in expected]}")
    return [item.name for item in inputs]


def _checked_output(path: Path, session: onnxruntime.InferenceSession, manifest: SpeakerManifest) -> str:
    outputs = session.get_outputs()
    for output in outputs:
        if output.type == "tensor(float)" and len(output.shape) == 2 and output.shape[1] == manifest.dimension:
            name: str = output.name
            return name
    shapes = ", ".join(str(output.shape) for output in outputs)
    raise EngineError(f"{path}: gives {shapes}, but the manifest says vectors of {manifest.dimension}")
