"""Synthetic voices: speakers are tones, speech is everything that is not silent."""

import numpy as np

from streams.models.manifest import Graph
from streams.models.protocol import Floats
from streams.voice.activity import CONTEXT, SileroDetector
from streams.voice.speaker_manifest import DiarizationSettings, SpeakerManifest, UtteranceInput
from streams.voice.speech_segments import RATE

SETTINGS = DiarizationSettings(window_s=1.6, hop_s=0.8, threshold=0.6)
MANIFEST = SpeakerManifest(
    name="tones",
    version="1",
    licence="CC0-1.0",
    source="here",
    graph=Graph("model.onnx", "0" * 64),
    input=UtteranceInput(sample_rate=RATE, min_samples=RATE // 2, max_samples=10 * RATE),
    dimension=5,
    threshold=0.5,
    diarization=SETTINGS,
)
PITCHES = (200, 400, 800, 1600, 3200)
WAVES = np.exp(2j * np.pi * np.outer(PITCHES, np.arange(2 * RATE) / RATE)).astype(np.complex64)


class Tones:
    """Represents a voice by the shares of its pitches."""

    def __init__(self, manifest: SpeakerManifest = MANIFEST) -> None:
        self.manifest = manifest

    def embed(self, samples: Floats) -> Floats:
        assert len(samples) >= RATE // 2
        samples = samples[: 2 * RATE]
        shares = np.abs(WAVES[:, : len(samples)] @ samples)
        unit: Floats = (shares / np.linalg.norm(shares)).astype(np.float32)
        return unit


class Ear(SileroDetector):
    """Detects loud sound."""

    least = 0.1

    def __init__(self) -> None:
        pass

    def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
        heard: Floats = (np.abs(frames[:, CONTEXT:]).mean(axis=1, keepdims=True) > self.least).astype(np.float32)
        return heard, state


def talk(*parts: tuple[int | None, float]) -> Floats:
    """Return consecutive samples of (speaker or None for silence, seconds)."""
    pieces = []
    for speaker, seconds in parts:
        times = np.arange(round(seconds * RATE)) / RATE
        pieces.append(np.zeros(len(times)) if speaker is None else np.sin(2 * np.pi * PITCHES[speaker] * times))
    return np.concatenate(pieces).astype(np.float32)
