"""The bundled speaker-embedding model over recordings of strangers."""

from __future__ import annotations

from functools import cache
from typing import BinaryIO

from infra import models
from infra.engines import recording
from streams.models.protocol import Floats
from streams.voice.speaker_engine import OnnxSpeakerEngine


@cache
def bundled() -> OnnxSpeakerEngine:
    """Load the model; threads share it.

    Raises:
        EngineError: it is not here or damaged.
    """
    return OnnxSpeakerEngine(models.directory("speaker_mini"))


def embed(file: BinaryIO) -> Floats:
    """Return the unit vector, float32[dimension], of the voice in a recording; blocks.

    Raises:
        AudioError: it cannot be decoded, or is too short or too long.
        EngineError: the model is not here, or failed.
    """
    engine = bundled()
    return engine.embed(recording.load(file, engine.manifest.input.sample_rate))
