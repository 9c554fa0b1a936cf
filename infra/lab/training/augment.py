"""Augments log-mel patches: level, channel response, other sounds and noise in the background, and masks.

Patches are mixed as magnitude spectra whose powers add, which is right on average for incoherent sounds.
"""

from typing import Final

import numpy as np

from infra.lab.converters.front_end import FRONT_END
from infra.teaching.operating_points import Doubles
from streams.models.protocol import Floats

#: Level of a patch in dB; recordings peak near full scale, so mostly downwards.
GAIN_DB: Final = (-18.0, 6.0)
#: How often, and how many dB below, another recording and synthetic noise are mixed in.
OTHER: Final = (0.25, (0.0, 20.0))
NOISE: Final = (0.25, (5.0, 40.0))
#: Standard deviation in dB of the channel's response at six points of the band axis.
COLOUR_DB: Final = 3.0
#: How often frames and bands are masked, and the maximum widths.
MASK: Final = (0.3, 16, 8)


def magnitudes(patches: Floats) -> Floats:
    """Return the mel magnitudes of float32[n, 96, 64] log-mels."""
    return np.maximum(np.exp(patches) - np.float32(FRONT_END.offset), 0.0)


def vary(
    patches: Floats, targets: Floats, others: Floats, other_targets: Floats, noise: Floats, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return augmented float32[n, 96, 64] log-mels and their targets float32[n, m].

    The targets of a background sound fall linearly with its distance in dB, to zero at the largest.
    """
    mixed = magnitudes(patches)
    chance, (near, far) = OTHER
    below = random.uniform(near, far, len(patches))
    behind = random.random(len(patches)) < chance
    mixed = _put_behind(mixed, magnitudes(others), np.where(behind, below, np.inf))
    share = np.where(behind, 1.0 - below / far, 0.0).astype(np.float32)
    targets = np.maximum(targets, other_targets * share[:, np.newaxis])
    chance, (near, far) = NOISE
    behind = random.random(len(patches)) < chance
    mixed = _put_behind(mixed, magnitudes(noise), np.where(behind, random.uniform(near, far, len(patches)), np.inf))
    gain_db = random.uniform(*GAIN_DB, (len(patches), 1, 1)) + _colour(len(patches), random)
    mixed *= (10.0 ** (gain_db / 20.0)).astype(np.float32)
    return _masked(np.log(mixed + np.float32(FRONT_END.offset)), random), targets


def _put_behind(front: Floats, back: Floats, below_db: Doubles) -> Floats:
    """Return `front` mixed with `back` at a level `below_db` lower; inf leaves `front` as it is."""
    level, other = (np.sqrt((m * m).mean(axis=(1, 2))) for m in (front, back))
    # If the front is silent, the other sound keeps its level.
    ratio = np.where(level > 0, level, other) / np.maximum(other, 1e-9)
    gain = (ratio * 10.0 ** (-below_db / 20.0)).astype(np.float32)[:, np.newaxis, np.newaxis]
    return np.sqrt(front * front + (gain * back) ** 2)


def _colour(count: int, random: np.random.Generator) -> Doubles:
    points = np.linspace(0, FRONT_END.bands - 1, 6)
    bands = np.arange(FRONT_END.bands)
    curves = [np.interp(bands, points, random.normal(0.0, COLOUR_DB, len(points))) for _ in range(count)]
    return np.stack(curves)[:, np.newaxis]


def _masked(patches: Floats, random: np.random.Generator) -> Floats:
    """Set some frames and bands of some patches to the patch's mean, as SpecAugment does (arXiv:1904.08779)."""
    chance, frames, bands = MASK
    for patch in patches:
        for axis, widest in ((patch, frames), (patch.T, bands)):
            if random.random() < chance:
                width = random.integers(1, widest + 1)
                at = random.integers(len(axis) - width + 1)
                axis[at : at + width] = patch.mean()
    return patches
