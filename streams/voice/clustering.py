"""Agglomerative clustering of unit vectors by average linkage, in bounded memory for any number of vectors.

The distance of two vectors is 1 - cosine; the distance of two clusters is the mean over their pairs. For unit vectors,
this mean is 1 - (a . b) / (n m), where a and b are the sums of n and m vectors. So a sum and a size represent a cluster
exactly, and clusters merge like vectors.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

#: Vectors added to the clusters at a time; the matrix of all their distances is in memory.
BLOCK: Final = 1024
#: Clusters kept for the next vectors; beyond this, the nearest are merged whatever their distance.
MAX_CLUSTERS: Final = 512
#: The room and the microphone make all windows of a recording somewhat alike. The cosine of different speakers is taken
#: to be this quantile of all cosines, but at most this cosine, because there may be only one speaker. The quantile is
#: low: with two speakers, or one dominant speaker, many cosines compare a voice with itself. Far from the microphone,
#: strangers reach a cosine of 0.3.
STRANGERS_QUANTILE: Final = 0.05
MAX_STRANGERS_COSINE: Final = 0.3


def cluster(vectors: Floats, threshold: float, *, block: int = BLOCK, most: int = MAX_CLUSTERS) -> Ints:
    """Return the cluster of each unit vector, float32[n, dimension], numbered in order of first appearance.

    Merge the nearest two clusters while they are nearer than `threshold` (a cosine distance, 0 to 2). Up to `block`
    vectors, this is plain average linkage. Further vectors are added to the clusters block by block. Memory beyond
    input and output is (block + most) squared doubles.
    """
    labels = np.empty(len(vectors), np.intp)
    sums, sizes = np.empty((0, vectors.shape[1])), np.empty(0)
    for start in range(0, len(vectors), block):
        new = vectors[start : start + block].astype(np.float64)
        sums, sizes = np.concatenate((sums, new)), np.concatenate((sizes, np.ones(len(new))))
        new_labels = merge_clusters(sums, sizes, threshold, most)
        labels[:start] = new_labels[: len(sums) - len(new)][labels[:start]]
        labels[start : start + block] = new_labels[len(sums) - len(new) :]
        sums, sizes = sum_by_label(sums, new_labels), sum_by_label(sizes, new_labels)
    return labels


def adapted_threshold(threshold: float, vectors: Floats, block: int = BLOCK) -> float:
    """Adapt `threshold` to a recording; it is meant for recordings with different speakers at distance 1.

    This stretches cosines between that of different speakers and 1 to 0..1. It compares at most `block` vectors.
    """
    some = vectors[:: -(-len(vectors) // block)]
    # Neighbouring windows share samples, so their cosines do not count.
    pairs = np.triu_indices(len(some), 3)
    if not len(pairs[0]):
        return threshold
    alike = np.clip(np.quantile((some @ some.T)[pairs], STRANGERS_QUANTILE), 0.0, MAX_STRANGERS_COSINE)
    return threshold * (1.0 - float(alike))


def merge_clusters(sums: Doubles, sizes: Doubles, threshold: float, most: int) -> Ints:
    """Merge clusters and return the new cluster of each, intp[n], numbered in order of first appearance.

    Clusters are given by their sums, float64[n, dimension], and sizes, float64[n]. Merge those nearer than
    `threshold` and, while there are more than `most`, the nearest whatever their distance.
    """
    owner = np.arange(len(sizes))
    sizes = sizes.copy()
    distances = 1.0 - (sums @ sums.T) / np.outer(sizes, sizes)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    for count in range(len(sizes), 1, -1):
        reach = distances[np.arange(len(sizes)), nearest]
        a = int(reach.argmin())
        b = int(nearest[a])
        if reach[a] >= threshold and count <= most:
            break
        a, b = min(a, b), max(a, b)
        owner[owner == b] = a
        # Lance and Williams 1967: the mean over a union's pairs is the mean of the means, weighted by size.
        row = (sizes[a] * distances[a] + sizes[b] * distances[b]) / (sizes[a] + sizes[b])
        row[[a, b]] = np.inf
        sizes[a] += sizes[b]
        distances[a], distances[:, a] = row, row
        distances[b], distances[:, b] = np.inf, np.inf
        # A union is no nearer to others than the nearer of its parts, so only its neighbours need a new search.
        stale = np.append(np.flatnonzero((nearest == a) | (nearest == b)), a)
        nearest[stale] = distances[stale].argmin(axis=1)
    return np.unique(owner, return_inverse=True)[1]


def sum_by_label(values: Doubles, labels: Ints) -> Doubles:
    """Return the sum of values, float64[n, ...], per label, float64[labels, ...]."""
    sums = np.zeros((int(labels.max(initial=-1)) + 1, *values.shape[1:]))
    np.add.at(sums, labels, values)
    return sums
