"""Synthetic audio for tests, and files of it. Samples are float32 in -1..1, rates are in Hz."""

import io

import numpy as np
import numpy.typing as npt
import soundfile

from streams.models.protocol import Floats

#: The default rate.
RATE = 16_000


def noise(count: int, seed: int = 0) -> Floats:
    """Return white noise, float32[count], with a standard deviation of 0.1."""
    return (0.1 * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def sine(seconds: float, hertz: float = 440.0, rate: int = RATE) -> Floats:
    """Return a tone of full scale, float32[seconds * rate]."""
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


#: Seconds from the start of one warble to the next.
WARBLE_S = 5


def warbles(*numbers: int) -> Floats:
    """Return a warble per number, float32[5 * RATE * numbers]: three seconds of sound and two of near silence.

    With the number rise the tone's pitch, its modulation rate and the noise.
    """
    seconds = np.arange(WARBLE_S * RATE) / RATE

    def one(number: int) -> npt.NDArray[np.float64]:
        swing = 25 * np.sin(2 * np.pi * (6 + number / 2) * seconds)
        tone = 0.3 * np.sin(2 * np.pi * (700 + 90 * number) * seconds + swing)
        hiss = np.random.default_rng(number).normal(0, 0.002 + 0.001 * number, len(seconds))
        return np.where(seconds < 3, tone, 0) + hiss

    return np.concatenate([one(number) for number in numbers]).astype(np.float32)


def encoded(samples: npt.ArrayLike, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Return samples [n] or [n, channels] as a file in a libsndfile format, by default with its usual subtype."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()
