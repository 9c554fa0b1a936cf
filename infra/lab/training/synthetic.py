"""Synthetic sounds on which no tag may be reported: silence, coloured noise, mains hum, tones, sweeps and beeps."""

import numpy as np

from infra.lab.training.clips import RATE
from streams.models.protocol import Floats


def synthetic(kind: int, random: np.random.Generator, length: int) -> Floats:
    """Return float32[length] of one of six kinds (`kind` modulo six), peak below -3 dBFS, at a random level."""
    makers = (_noise, _silence, _noise, _hum, _tones, _sweep)
    samples = makers[kind % len(makers)](random, length)
    peak = float(np.abs(samples).max()) or 1.0
    level = 10.0 ** (random.uniform(-60.0, -3.0) / 20.0)
    return (samples * min(1.0, level / peak)).astype(np.float32)


def _silence(random: np.random.Generator, length: int) -> Floats:
    """Digital silence, or the dither of 16 bits."""
    return (random.normal(size=length) * random.choice([0.0, 2.0**-15])).astype(np.float32)


def _noise(random: np.random.Generator, length: int) -> Floats:
    """Noise whose amplitude falls as f ** -slope, slope 0 (white) to 1.2 (past red); half of the time band-limited."""
    spectrum = np.fft.rfft(random.normal(size=length))
    hertz = np.maximum(np.fft.rfftfreq(length, 1.0 / RATE), 20.0)
    spectrum *= hertz ** -random.uniform(0.0, 1.2)
    if random.random() < 0.5:
        centre, octaves = np.exp(random.uniform(np.log(150.0), np.log(6000.0))), random.uniform(0.3, 3.0)
        spectrum *= np.exp(-0.5 * (np.log2(hertz / centre) / octaves) ** 2)
    return np.fft.irfft(spectrum, length).astype(np.float32)


def _hum(random: np.random.Generator, length: int) -> Floats:
    """Mains hum: 50 or 60 Hz and harmonics that fall off, over a little noise."""
    base = random.choice([50.0, 60.0])
    time = np.arange(length) / RATE
    harmonics = range(1, int(random.integers(3, 30)))
    fall = random.uniform(0.3, 1.5)
    tones = sum(random.random() * n**-fall * np.sin(2 * np.pi * n * base * time) for n in harmonics)
    return (tones + random.uniform(0.0, 0.05) * random.normal(size=length)).astype(np.float32)


def _tones(random: np.random.Generator, length: int) -> Floats:
    """One to three steady tones of up to four harmonics, or as beeps of a regular rate."""
    time = np.arange(length) / RATE
    tones = np.zeros(length)
    for _ in range(random.integers(1, 4)):
        hertz = np.exp(random.uniform(np.log(100.0), np.log(4000.0)))
        for n in range(1, int(random.integers(2, 6))):
            if n * hertz < RATE / 2:
                tones += random.random() / n * np.sin(2 * np.pi * n * hertz * time + random.uniform(0, 6.28))
    if random.random() < 0.5:
        tones *= (time * random.uniform(0.5, 8.0)) % 1.0 < random.uniform(0.2, 0.8)
    return tones.astype(np.float32)


def _sweep(random: np.random.Generator, length: int) -> Floats:
    """A tone whose frequency wanders between two limits, up to four times a second."""
    time = np.arange(length) / RATE
    low, high = np.sort(np.exp(random.uniform(np.log(150.0), np.log(5000.0), 2)))
    course = 0.5 - 0.5 * np.cos(2 * np.pi * random.uniform(0.1, 4.0) * time + random.uniform(0, 6.28))
    return np.sin(2 * np.pi * np.cumsum(low + (high - low) * course) / RATE).astype(np.float32)
