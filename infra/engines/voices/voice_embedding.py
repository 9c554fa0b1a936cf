"""Runs the bundled speaker-embedding model on uploaded recordings."""

from functools import cache
from typing import BinaryIO

from infra import models
from infra.engines import recording
from streams.models.protocol import Floats
from streams.voice.speaker_engine import OnnxSpeakerEngine


@cache
def bundled_engine() -> OnnxSpeakerEngine:
    """Return the model, loaded once and shared by all threads.

    Raises:
        EngineError: the model is missing or damaged.
    """
    return OnnxSpeakerEngine(models.directory(models.SPEAKERS))


def embed(file: BinaryIO) -> Floats:
    """Return the unit vector, float32[dimension], of the voice in a recording; blocks.

    Raises:
        AudioError: it cannot be decoded, or is too short or too long.
        EngineError: the model is missing, damaged, or failed.
    """
    engine = bundled_engine()
    return engine.embed(recording.load(file, engine.manifest.input.sample_rate))
