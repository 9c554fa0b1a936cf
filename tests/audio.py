"""Audio made up for tests, and files of it. Samples are float32 in -1..1, rates are in Hz."""

import io

import numpy as np
import numpy.typing as npt
import soundfile

from streams.models.protocol import Floats

#: The rate where none is given.
RATE = 16_000


def noise(count: int, seed: int = 0) -> Floats:
    """Return white noise, float32[count], with a standard deviation of 0.1."""
    return (0.1 * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def sine(seconds: float, hertz: float = 440.0, rate: int = RATE) -> Floats:
    """Return a tone of full scale, float32[seconds * rate]."""
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


def encoded(samples: npt.ArrayLike, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Return samples [n] or [n, channels] as a file of one of libsndfile's kinds, by default with its usual subtype."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()
