"""`python -m infra.compile`: compiles the audio kernels into their cache, so that the first start need not."""

from __future__ import annotations

from infra import models
from streams.audio.warm import warm
from streams.models.sound_engine import OnnxSoundEngine

if __name__ == "__main__":
    warm(OnnxSoundEngine(models.directory()))
