"""Embeddings of the windows of recordings, made by the service's own analysis."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from infra.lab.evaluation.recordings import SkippedRecording, read_audio
from infra.lab.evaluation.sound import window_power
from infra.teaching.heads import EmbeddedWindows
from streams.audio.analysis import Analysis
from streams.models.manifest import Manifest
from streams.models.protocol import ContextEngine, Floats, SoundEngine
from streams.models.sound_engine import OnnxSoundEngine
from topics.errors import AudioError, BadRequest
from topics.geometry import SESSIONS

Embedded = TypeVar("Embedded", bound="EmbeddedWindows")


class EmbeddedContexts(EmbeddedWindows, frozen=True):
    """The contexts of a recording that a second model hears, cut as for a recording or a stream."""

    #: The first model's highest score of any tag, which decides whether the recording passes the gate.
    first: float


class ContextRecorder(SoundEngine, ContextEngine):
    """Replaces both models in an `Analysis`: records their outputs, and returns zero scores."""

    def __init__(
        self, manifest: Manifest, first: SoundEngine, embed: Callable[[Floats], tuple[Floats, Floats]]
    ) -> None:
        """Record a first model, and the class scores and embedding that `embed` returns for a context."""
        self.manifest = manifest
        #: The first model's scores of each window, float32[tags], and the number of its context.
        self.windows: list[tuple[Floats, int]] = []
        self.contexts: list[tuple[Floats, Floats]] = []
        #: Mean power of each context in dB.
        self.levels: list[float] = []
        self._first = first
        self._embed = embed

    @property
    def second(self) -> ContextEngine:
        return self

    def scores(self, patch: Floats) -> Floats:
        return self._first.scores(patch)

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        """Record a context, float32[frames, bands] in dB, and return its number in place of logits."""
        self.contexts.append(self._embed(frames))
        self.levels.append(10.0 * float(np.log10(np.mean(10.0 ** (frames / 10.0)))))
        return np.array([len(self.contexts) - 1], np.float32), self.contexts[-1][1]

    def combine(self, scores: Floats, context: Callable[[], Floats]) -> Floats:
        """Record a window, whether or not it passes the gate."""
        self.windows.append((scores, int(context()[0])))
        return np.zeros_like(scores)


class _EmbeddingRecorder(SoundEngine):
    """Replaces a model in an `Analysis`: records the embedding of each patch, and returns zero scores."""

    def __init__(self, engine: OnnxSoundEngine) -> None:
        self.manifest = msgspec.structs.replace(engine.manifest, second=None)
        self.kept: list[Floats] = []
        self._engine = engine
        self._nothing = np.zeros(len(engine.manifest.tags), np.float32)

    def scores(self, patch: Floats) -> Floats:
        self.kept.append(self._engine.embed(patch)[1])
        return self._nothing


def embed(engine: OnnxSoundEngine, path: Path) -> EmbeddedWindows:
    """Return the windows of a file as the service cuts them.

    Raises:
        AudioError: It cannot be read or does not decode.
        EngineError: The model gives no embedding.
    """
    pcm = read_audio(path)
    notes = _EmbeddingRecorder(engine)
    analysis = Analysis(notes, SESSIONS, pcm.rate, hears_silence=True)
    analysis.feed(pcm.samples)
    analysis.finish()
    # -120 dB for digital silence.
    levels = 10.0 * np.log10(window_power(pcm.samples, pcm.rate, len(notes.kept)) + 1e-12)
    return EmbeddedWindows(np.stack(notes.kept), levels.astype(np.float32))


def embed_contexts(engine: OnnxSoundEngine, path: Path, recording: bool) -> EmbeddedContexts:
    """Return the contexts of a file, cut as in a `recording` or in a stream.

    Raises:
        AudioError: It cannot be read or does not decode.
        EngineError: A model failed.
    """
    pcm = read_audio(path)
    assert engine.second is not None
    notes = ContextRecorder(engine.manifest, engine, engine.second.embed)
    analysis = Analysis(notes, SESSIONS, pcm.rate, recording=recording, hears_silence=True)
    analysis.feed(pcm.samples)
    analysis.finish()
    embeddings = np.stack([embedding for _, embedding in notes.contexts])
    first = max(float(scores.max()) for scores, _ in notes.windows)
    return EmbeddedContexts(embeddings, np.array(notes.levels, np.float32), first)


def embed_folder(embed: Callable[[Path], Embedded], directory: Path) -> tuple[list[Embedded], list[SkippedRecording]]:
    """Embed the recordings under a directory, ordered by path; also return the files that do not decode.

    Raises:
        BadRequest: There is no such directory.
        EngineError: The model gives no embedding.
    """
    if not directory.is_dir():
        raise BadRequest(f"{directory}: is not a directory")
    windows, skipped = [], []
    for path in sorted(path for path in directory.rglob("[!.]*") if path.is_file()):
        try:
            windows.append(embed(path))
        except AudioError as error:
            skipped.append(SkippedRecording(str(path.relative_to(directory)), str(error)))
    return windows, skipped
