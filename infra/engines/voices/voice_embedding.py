"""Runs the bundled speaker-embedding model on uploaded recordings."""

from functools import cache
from typing import BinaryIO

import structlog

from infra import models
from infra.engines import recording
from streams.models.protocol import Floats
from streams.voice.speaker_engine import OnnxSpeakerEngine
from topics.errors import EngineError

log = structlog.get_logger("infra.engines")


@cache
def bundled_engine() -> OnnxSpeakerEngine:
    """Return the model, loaded once and shared by all threads.

    Raises:
        EngineError: the model is missing or damaged.
    """
    try:
        return OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    except EngineError as error:
        log.error("speaker.unusable", error=str(error))
        raise


def embed(file: BinaryIO) -> Floats:
    """Return the unit vector, float32[dimension], of the voice in a recording; blocks.

    Raises:
        AudioError: it cannot be decoded, or is too short or too long.
        EngineError: the model is missing, damaged, or failed.
    """
    engine = bundled_engine()
    return engine.embed(recording.load(file, engine.manifest.input.sample_rate))
