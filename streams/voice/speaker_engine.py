"""Speaker embeddings: an utterance in, a unit vector out that points where other utterances of the voice point."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime

from streams.models import runtime
from streams.models.protocol import Floats
from streams.voice import manifest
from streams.voice.manifest import FbankInput, SpeakerManifest
from topics.errors import AudioError, EngineError


class SpeakerEngine(Protocol):
    """A loaded speaker-embedding model; threads may share it."""

    @property
    def manifest(self) -> SpeakerManifest:
        """What the model takes and gives."""
        ...

    def embed(self, samples: Floats) -> Floats:
        """Return the unit vector, float32[dimension], of float32[n] in -1..1 at the manifest's sample rate.

        The cosine of two utterances is the product of their vectors. The same samples give the same bits.

        Raises:
            AudioError: there are fewer samples than the model needs.
            EngineError: the model failed, or gave no direction.
        """
        ...


class OnnxSpeakerEngine:
    """One graph: samples or filter-bank frames in (see `manifest.FbankInput` for what known models take), a vector out.

    Inputs are float32[n, samples], float32[n, frames, bands] or float32[n, bands, frames] and, where the graph has a
    second one, int64[n]: how many frames there are. Of its outputs the first that is [n, dimension] is read; it need
    not be normalised.
    """

    def __init__(self, directory: Path) -> None:
        """Load the model in `directory`.

        Raises:
            EngineError: manifest or graph are missing, damaged, or do not fit; one line naming the fault.
        """
        self.manifest: SpeakerManifest = manifest.read(directory)
        path = directory / self.manifest.graph.file
        self._session = runtime.open_session(path, self.manifest.graph.sha256)
        self._inputs = _fitting_inputs(path, self._session, self.manifest)
        self._output = _fitting_output(path, self._session, self.manifest)

    def embed(self, samples: Floats) -> Floats:
        """Embed an utterance; see `SpeakerEngine`. A long one is the mean direction of pieces of equal length."""
        given = self.manifest.input
        if len(samples) < given.min_samples:
            seconds = given.min_samples / given.sample_rate
            raise AudioError(f"{len(samples) / given.sample_rate:.2f} s of audio, a voice needs {seconds:.2f} s")
        pieces = np.array_split(samples, -(-len(samples) // given.max_samples))
        return self._unit(np.add.reduce([self._unit(self._run(piece)) for piece in pieces]))

    def _run(self, samples: Floats) -> Floats:
        features = samples
        if isinstance(self.manifest.input, FbankInput):
            # Not at the top: it brings numba, a second and 80 MB that a model of samples does not need.
            from streams.voice.fbank import fbank

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
        unit: Floats = vector / length
        return unit


def _fitting_inputs(path: Path, session: onnxruntime.InferenceSession, known: SpeakerManifest) -> list[str]:
    """Return the names of the inputs, once graph and manifest agree on them: a dynamic axis fits any length."""
    given = known.input
    wanted: list[int | None] = [None, None]
    if isinstance(given, FbankInput):
        wanted = [None, None, given.bands] if given.layout == "frames-bands" else [None, given.bands, None]
    inputs = session.get_inputs()
    first, *rest = inputs
    fits = len(first.shape) == len(wanted) and all(
        axis == size or (not isinstance(axis, int) or (index == 0 and axis == 1))
        for index, (axis, size) in enumerate(zip(first.shape, wanted, strict=True))
    )
    if first.type != "tensor(float)" or not fits or len(rest) > 1 or any(r.type != "tensor(int64)" for r in rest):
        found = ", ".join(f"{item.type} {item.shape}" for item in inputs)
        raise EngineError(f"{path}: takes {found}; expected float {['any' if w is None else w for w in wanted]}")
    return [item.name for item in inputs]


def _fitting_output(path: Path, session: onnxruntime.InferenceSession, known: SpeakerManifest) -> str:
    outputs = session.get_outputs()
    for output in outputs:
        if output.type == "tensor(float)" and len(output.shape) == 2 and output.shape[1] == known.dimension:
            name: str = output.name
            return name
    found = ", ".join(str(output.shape) for output in outputs)
    raise EngineError(f"{path}: gives {found}, but the manifest says vectors of {known.dimension}")
