"""Clustering: equal to average linkage by definition, and the same groups in blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.models.protocol import Floats
from streams.voice.clustering import MAX_STRANGERS_COSINE, adapted_threshold, cluster, merge_clusters, sum_by_label


def voices(speakers: list[int], spread: float = 0.5, seed: int = 0) -> Floats:
    """Return unit vectors around a direction per speaker, with deviations of length `spread`."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(32, 32)))[0]
    noise = rng.normal(size=(len(speakers), 32))
    vectors = centres[speakers] + spread * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def naive(vectors: Floats, threshold: float) -> list[int]:
    """Average linkage over lists of members, computing each mean over pairs anew."""
    distances = 1.0 - vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    groups = [[index] for index in range(len(vectors))]
    while len(groups) > 1:
        pairs = [(distances[np.ix_(a, b)].mean(), i, j) for i, a in enumerate(groups) for j, b in enumerate(groups[:i])]
        nearest, i, j = min(pairs)
        if nearest >= threshold:
            break
        groups[j] += groups.pop(i)
    groups.sort(key=min)
    return [next(number for number, group in enumerate(groups) if index in group) for index in range(len(vectors))]


@given(count=st.integers(1, 25), dimension=st.integers(2, 6), threshold=st.floats(0.05, 1.9), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_clusters_equal_average_linkage(count: int, dimension: int, threshold: float, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert cluster(vectors.astype(np.float32), threshold).tolist() == naive(vectors.astype(np.float32), threshold)


@pytest.mark.parametrize("block", [7, 50, 1024])
def test_block_size_does_not_change_speakers(block: int) -> None:
    speakers = np.random.default_rng(1).integers(0, 5, 200)
    _, first = np.unique(speakers, return_index=True)
    number = {speaker: rank for rank, speaker in enumerate(speakers[np.sort(first)])}
    want = [number[speaker] for speaker in speakers]
    assert cluster(voices(speakers.tolist()), 0.6, block=block).tolist() == want


def test_extreme_thresholds_and_empty_input() -> None:
    vectors = voices([0, 1, 2, 3])
    assert cluster(vectors, 1e-6).tolist() == [0, 1, 2, 3]
    assert cluster(vectors, 2.1).tolist() == [0, 0, 0, 0]
    assert cluster(voices([0]), 0.5).tolist() == [0]
    assert cluster(np.empty((0, 8), np.float32), 0.5).tolist() == []


def test_number_of_clusters_is_limited() -> None:
    strangers = np.random.default_rng(3).normal(size=(300, 64))
    strangers /= np.linalg.norm(strangers, axis=1, keepdims=True)
    labels = cluster(strangers.astype(np.float32), 1e-6, block=50, most=20)
    assert labels.max() + 1 == 20
    assert len(np.unique(labels)) == 20


def test_merging_clusters_equals_merging_their_vectors() -> None:
    vectors = voices([0, 0, 1, 1, 1, 0], spread=1.0).astype(np.float64)
    parts = np.array([0, 0, 1, 1, 2, 3])
    merged = merge_clusters(sum_by_label(vectors, parts), sum_by_label(np.ones(6), parts), 0.7, 512)
    means = 1.0 - np.array(
        [[vectors[parts == a].mean(0) @ vectors[parts == b].mean(0) for a in range(4)] for b in range(4)]
    )
    np.fill_diagonal(means, np.inf)
    a, b = np.unravel_index(means.argmin(), means.shape)
    assert merged[a] == merged[b]


def test_threshold_adapts_to_common_room_direction() -> None:
    """A room adds one direction to all vectors; the threshold applies to distances without it."""
    speakers = [0, 1, 2] * 12
    vectors = voices(speakers, spread=1.0)
    roomy = vectors + 0.5 * voices([31])
    roomy /= np.linalg.norm(roomy, axis=1, keepdims=True)
    strangers = (vectors @ vectors.T)[np.not_equal.outer(speakers, speakers)].mean()
    assert strangers < 0.02
    assert adapted_threshold(0.8, vectors) == 0.8
    assert adapted_threshold(0.8, roomy) == pytest.approx(0.73, abs=0.01)
    assert adapted_threshold(0.8, voices([0] * 30)) == pytest.approx(0.8 * (1 - MAX_STRANGERS_COSINE))


@pytest.mark.parametrize("speakers", [[0] * 9 + [1] + [0] * 9 + [1], [0, 1, 0], [0]], ids=["another", "few", "one"])
def test_second_voice_or_few_windows_keep_threshold(speakers: list[int]) -> None:
    assert adapted_threshold(0.8, voices(speakers)) == 0.8


def test_threshold_is_adapted_from_vector_sample() -> None:
    vectors = voices([0, 1] * 300)
    assert adapted_threshold(0.8, vectors, block=99) == adapted_threshold(0.8, vectors[::7])
    assert adapted_threshold(0.8, vectors, block=99) == pytest.approx(adapted_threshold(0.8, vectors), abs=0.03)
