"""Learns the speaker net's last layer: linear discriminant analysis on whitened principal components."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from infra.lab.training.speaker_graph import Projection
from infra.lab.training.speaker_statistics import Crops
from infra.teaching.operating_points import Doubles, Indices
from streams.models.protocol import Floats

#: Number of crops for the principal components.
SAMPLE: Final = 2000
COMPONENTS: Final = 400
DIMENSION: Final = 128
#: Share of the mean variance within voices that is added to the variance in each direction.
SHRINKAGE: Final = 0.02
#: Added to every deviation, for constant features; and rows of features multiplied at once.
LEAST: Final = 1e-3
ROWS: Final = 4096


def learn(crops: Sequence[Crops]) -> Projection:
    """Return the projection that best separates voices relative to variation within each; `crops` share no voices.

    Fisher's criterion: with W and B the covariances within and between voices, the directions with the largest
    generalised eigenvalues of (B, W), each scaled to unit variance within voices.
    """
    sizes = [len(part.voices) for part in crops]
    step = max(1, sum(sizes) // SAMPLE)
    sample = np.concatenate([part.statistics[::step] for part in crops]).astype(np.float32)
    mean, deviation = sample.mean(axis=0), sample.std(axis=0) + np.float32(LEAST)
    components = _principal((sample - mean) / deviation)
    rows = [
        (part.statistics[start : start + ROWS].astype(np.float32) - mean) / deviation @ components
        for part in crops
        for start in range(0, len(part.voices), ROWS)
    ]
    directions = _discriminant(np.concatenate(rows).astype(np.float64), np.concatenate([part.voices for part in crops]))
    return Projection(mean, deviation, (components @ directions).astype(np.float32))


def _principal(rows: Floats) -> Doubles:
    """Return float64[features, components]: projections of unit variance, by eigenvectors of the Gram matrix."""
    values, vectors = np.linalg.eigh((rows @ rows.T).astype(np.float64))
    values, vectors = values[::-1][:COMPONENTS], vectors[:, ::-1][:, :COMPONENTS]
    return rows.T @ (vectors / values) * np.sqrt(len(rows))


def _discriminant(rows: Doubles, voices: Indices) -> Doubles:
    _, numbers, counts = np.unique(voices, return_inverse=True, return_counts=True)
    centres = np.zeros((len(counts), rows.shape[1]))
    np.add.at(centres, numbers, rows)
    centres /= counts[:, np.newaxis]
    around = rows - centres[numbers]
    within = around.T @ around / len(rows)
    within += np.eye(len(within)) * np.trace(within) / len(within) * SHRINKAGE
    values, vectors = np.linalg.eigh(within)
    whitening = vectors / np.sqrt(values)
    _, axes = np.linalg.eigh(whitening.T @ np.cov(centres.T) @ whitening)
    return whitening @ axes[:, ::-1][:, :DIMENSION]
