"""Embeddings of the windows of recordings, made by the service's own analysis."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from infra.lab.evaluation.recordings import SkippedRecording
from infra.teaching.heads import EmbeddedWindows
from streams.audio.analysis import Analysis
from streams.audio.decode import DecodedAudio, decode_chunk
from streams.models.manifest import Manifest
from streams.models.protocol import Floats, LookEngine, SoundEngine
from streams.models.sound_engine import OnnxSoundEngine
from topics.errors import AudioError, BadRequest
from topics.geometry import SESSIONS
from topics.media import parse

Embedded = TypeVar("Embedded", bound="EmbeddedWindows")


class EmbeddedLooks(EmbeddedWindows, frozen=True):
    """The looks of a recording that a second model hears, as those of a recording or of a stream."""

    #: The highest score that the first model gave any tag: whether the recording passes the gate.
    first: float


class LookRecorder(SoundEngine, LookEngine):
    """Stands in for both models in an `Analysis`: records what they give, and returns zero scores."""

    def __init__(
        self, manifest: Manifest, first: SoundEngine, embed: Callable[[Floats], tuple[Floats, Floats]]
    ) -> None:
        """Record a first model, and what `embed` makes of a look: class scores and an embedding."""
        self.manifest = manifest
        #: The first model's scores of each window, float32[tags], and the number of its look.
        self.windows: list[tuple[Floats, int]] = []
        self.looks: list[tuple[Floats, Floats]] = []
        #: Mean power of each look in dB, from any level on.
        self.levels: list[float] = []
        self._first = first
        self._embed = embed

    @property
    def second(self) -> LookEngine:
        return self

    def scores(self, patch: Floats) -> Floats:
        return self._first.scores(patch)

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        """Record a look, float32[frames, bands] in dB, and return its number for its logits."""
        self.looks.append(self._embed(frames))
        self.levels.append(10.0 * float(np.log10(np.mean(10.0 ** (frames / 10.0)))))
        return np.array([len(self.looks) - 1], np.float32), self.looks[-1][1]

    def combine(self, scores: Floats, look: Callable[[], Floats]) -> Floats:
        """Record a window, whether it passes the gate or not."""
        self.windows.append((scores, int(look()[0])))
        return np.zeros_like(scores)


class _EmbeddingRecorder(SoundEngine):
    """Stands in for a model in an `Analysis`: records the embedding of each patch, and returns zero scores."""

    def __init__(self, engine: OnnxSoundEngine) -> None:
        self.manifest = msgspec.structs.replace(engine.manifest, second=None)
        self.kept: list[Floats] = []
        self._engine = engine
        self._nothing = np.zeros(len(engine.manifest.tags), np.float32)

    def scores(self, patch: Floats) -> Floats:
        """Record the embedding of one patch; return zeros, float32[tags]."""
        self.kept.append(self._engine.embed(patch)[1])
        return self._nothing


def embed(engine: OnnxSoundEngine, path: Path) -> EmbeddedWindows:
    """Return the windows of a file as the service cuts them.

    Raises:
        AudioError: it cannot be read or does not decode.
        EngineError: the model gives no embedding.
    """
    pcm = _decoded(path)
    notes = _EmbeddingRecorder(engine)
    analysis = Analysis(notes, SESSIONS, pcm.rate)
    analysis.feed(pcm.samples)
    analysis.finish()
    return EmbeddedWindows(np.stack(notes.kept), _levels(pcm.samples, pcm.rate, len(notes.kept)))


def embed_looks(engine: OnnxSoundEngine, path: Path, recording: bool) -> EmbeddedLooks:
    """Return the looks of a file as the service takes them in a `recording`, or in a stream.

    Raises:
        AudioError: it cannot be read or does not decode.
        EngineError: a model failed.
    """
    pcm = _decoded(path)
    assert engine.second is not None
    notes = LookRecorder(engine.manifest, engine, engine.second.embed)
    analysis = Analysis(notes, SESSIONS, pcm.rate, recording=recording)
    analysis.feed(pcm.samples)
    analysis.finish()
    embeddings = np.stack([embedding for _, embedding in notes.looks])
    first = max(float(scores.max()) for scores, _ in notes.windows)
    return EmbeddedLooks(embeddings, np.array(notes.levels, np.float32), first)


def _decoded(path: Path) -> DecodedAudio:
    try:
        return decode_chunk(path.read_bytes(), parse("application/octet-stream"))
    except OSError as error:
        raise AudioError(error.strerror or str(error)) from error


def embed_folder(embed: Callable[[Path], Embedded], directory: Path) -> tuple[list[Embedded], list[SkippedRecording]]:
    """Return the recordings under a directory in the order of their paths, and the files that do not decode.

    Raises:
        BadRequest: there is no such directory.
        EngineError: the model gives no embedding.
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


def stack(recordings: Sequence[EmbeddedWindows]) -> Floats:
    """Return the embeddings of all recordings, one after the other."""
    return np.concatenate([recording.embeddings for recording in recordings])


def _levels(samples: Floats, rate: int, windows: int) -> Floats:
    power = np.concatenate(([0.0], np.cumsum(np.square(samples, dtype=np.float64))))
    starts = np.arange(windows) * (rate * SESSIONS.hop_ms // 1000)
    ends = np.minimum(starts + rate * SESSIONS.window_ms // 1000, len(samples))
    mean = (power[ends] - power[starts]) / (ends - starts)
    # Digital silence is 120 dB down.
    return (10.0 * np.log10(mean + 1e-12)).astype(np.float32)
