"""Simulates rooms, microphones and noise, to test whether voices are still recognised."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from infra.teaching.operating_points import Doubles
from streams.models.protocol import Floats

#: Length of the room's impulse response in samples.
ROOM: Final = 8192
#: Samples between the direct sound and the first reflection.
DIRECT: Final = 32

Channel = Callable[[Floats, np.random.Generator], Floats]


def heard_through(channel: Channel, read: Iterable[Utterance], rng: np.random.Generator) -> list[Utterance]:
    return [msgspec.structs.replace(one, samples=channel(one.samples, rng)) for one in read]


def through_channel(samples: Floats, rng: np.random.Generator) -> Floats:
    """Return float32[n] at 16 kHz through a random room and a random microphone, with noise, at a random level.

    The room is white noise that decays by 60 dB in 0.15 to 0.5 s, 0 to 10 dB below the direct sound. The microphone is
    a response curve through six points of 5 dB (one sigma); in three of ten cases it falls above 3.4..5 kHz, and in
    three of ten below 150..350 Hz. The noise is coloured, 8 to 25 dB below. The peak is 0 to 15 dB below full scale.
    """
    size = 1 << (len(samples) + ROOM - 1).bit_length()
    hertz: Doubles = np.arange(size // 2 + 1) * SAMPLE_RATE / size
    gains = 10.0 ** (_microphone(hertz, rng) / 20.0)
    filtered = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(_room(rng), size) * gains)
    filtered = filtered[: len(samples)]
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(size)) * (hertz + 50.0) ** -rng.uniform(0.0, 1.0))
    noise = noise[: len(samples)]
    filtered += noise * _rms(filtered) / _rms(noise) * 10.0 ** (-rng.uniform(8.0, 25.0) / 20.0)
    peak = max(float(np.abs(filtered).max()), 1e-9)
    scaled: Floats = (filtered * 10.0 ** (-rng.uniform(0.0, 15.0) / 20.0) / peak).astype(np.float32)
    return scaled


def _room(rng: np.random.Generator) -> Doubles:
    """Return the impulse response of a random room, float64[ROOM]: the direct sound and decaying white noise."""
    tail = rng.standard_normal(ROOM) * 10.0 ** (-3.0 * np.arange(ROOM) / SAMPLE_RATE / rng.uniform(0.15, 0.5))
    tail[:DIRECT] = 0.0
    tail *= 10.0 ** (-rng.uniform(0.0, 10.0) / 20.0) / np.linalg.norm(tail)
    tail[0] = 1.0
    return tail


def small_room(samples: Floats, rng: np.random.Generator) -> Floats:
    """Return float32[n] at 16 kHz through a random room."""
    size = 1 << (len(samples) + ROOM - 1).bit_length()
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(_room(rng), size), size)[: len(samples)]
    return heard.astype(np.float32)


def _microphone(hertz: Doubles, rng: np.random.Generator) -> Doubles:
    octaves = np.log2(np.maximum(hertz, 50.0) / 50.0)
    curve: Doubles = np.interp(octaves, np.linspace(0.0, octaves[-1], 6), 5.0 * rng.standard_normal(6))
    if rng.random() < 0.3:
        curve -= 24.0 * np.maximum(0.0, np.log2(np.maximum(hertz, 1.0) / rng.uniform(3400.0, 5000.0)))
    if rng.random() < 0.3:
        curve -= 12.0 * np.maximum(0.0, np.log2(rng.uniform(150.0, 350.0) / np.maximum(hertz, 20.0)))
    return curve


def _rms(samples: Doubles) -> float:
    return max(float(np.sqrt(np.mean(samples**2))), 1e-9)
