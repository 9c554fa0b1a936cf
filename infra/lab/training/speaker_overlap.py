"""Learns by which direction of a speaker model's vectors windows in which two speak at once differ from all others.

Windows are made of readers: one alone, two at once for at least half of it, and one after the other, half of them
through a random channel. The direction is that of least squares with shrinkage, which for two classes is Fisher's
discriminant.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from infra.lab.evaluation.channels import through_channel
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from streams.models.protocol import Floats
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speaker_manifest import OverlapSettings

WINDOW: Final = round(1.6 * SAMPLE_RATE)
#: Root mean square of one voice, and by how much two that speak at once differ, in decibels.
LEVEL: Final = 0.07
DIFFERENCE_DB: Final = 5.0
#: Windows of each kind to learn from, and to measure with.
LEARNT: Final = 300
MEASURED: Final = 100
#: Share of the mean variance that is added in each direction.
SHRINKAGE: Final = 0.3
#: The share of windows with one speaker that may count as windows with two.
FALSE: Final = 0.02


def learn(engine: SpeakerEngine, read: Sequence[Utterance], seed: int = 0) -> OverlapSettings:
    """Return the direction and the point from which two speak at once.

    Raises:
        EngineError: the model failed.
    """
    vectors, both = _vectors(engine, read, LEARNT, np.random.default_rng((seed, 0)))
    target = both - both.mean()
    centred = vectors - vectors.mean(axis=0)
    covariance = centred.T @ centred
    covariance += np.eye(len(covariance)) * np.trace(covariance) / len(covariance) * SHRINKAGE
    direction = np.linalg.solve(covariance, centred.T @ target)
    direction /= np.linalg.norm(direction)
    # The point is set on other windows, since those above were fitted.
    others, both = _vectors(engine, read, MEASURED, np.random.default_rng((seed, 1)))
    least = float(np.quantile((others @ direction)[both == 0], 1.0 - FALSE))
    return OverlapSettings(tuple(np.round(direction, 4).tolist()), round(least, 4))


def measure(
    engine: SpeakerEngine, read: Sequence[Utterance], overlap: OverlapSettings, seed: int = 0
) -> tuple[float, float]:
    """Return the share of windows with two speakers that are found, and of others that are mistaken for them.

    Raises:
        EngineError: the model failed.
    """
    vectors, both = _vectors(engine, read, MEASURED, np.random.default_rng((seed, 2)))
    found = vectors @ np.array(overlap.direction) >= overlap.least
    return float(found[both == 1].mean()), float(found[both == 0].mean())


def _vectors(
    engine: SpeakerEngine, read: Sequence[Utterance], count: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return vectors of windows of three kinds, float32[3 * count, dimension], and 1 for two at once, else 0."""
    vectors, both = [], []
    for number in range(count):
        one, other = (_voice(read[int(index)], rng) for index in rng.choice(len(read), 2, replace=False))
        length = int(rng.uniform(0.5, 1.0) * WINDOW)
        at = int(rng.choice((0, WINDOW - length)))
        together = one.copy()
        gain = 10.0 ** (rng.uniform(-DIFFERENCE_DB, DIFFERENCE_DB) / 20.0)
        together[at : at + length] += np.float32(gain) * other[:length]
        change = int(rng.uniform(0.3, 0.7) * WINDOW)
        for window, overlapped in ((one, 0), (together, 1), (np.append(one[:change], other[change:]), 0)):
            heard = through_channel(window, SAMPLE_RATE, rng) if number % 2 else window
            vectors.append(engine.embed(heard))
            both.append(overlapped)
    return np.array(vectors), np.array(both, np.float32)


def _voice(utterance: Utterance, rng: np.random.Generator) -> Floats:
    """Return a window of an utterance at a level, where possible not of a pause."""
    samples = np.resize(utterance.samples, max(len(utterance.samples), WINDOW + 1))
    starts = rng.integers(0, len(samples) - WINDOW, 4).tolist()
    piece = max((samples[start : start + WINDOW] for start in starts), key=lambda one: float(one @ one))
    voice: Floats = (piece * (LEVEL / max(float(np.sqrt(np.mean(piece**2))), 1e-6))).astype(np.float32)
    return voice
