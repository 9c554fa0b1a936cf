"""Matching equals its definition: the nearest mean direction of the same model, if it reaches the threshold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.clients.embeddings import EmbeddingModel, VoiceEmbedding
from streams.models.protocol import Floats
from streams.speakers.matching import Match, match, names_of
from streams.speakers.speaker_store import EnrolledSpeaker, VoiceSample

MODELS = (EmbeddingModel("m", "a" * 64), EmbeddingModel("m", "b" * 64))


def unit(seed: int, dimension: int = 4) -> Floats:
    vector = np.random.default_rng(seed).normal(size=dimension)
    made: Floats = (vector / np.linalg.norm(vector)).astype(np.float32)
    return made


def enrolled(name: str, *samples: tuple[int, int]) -> EnrolledSpeaker:
    """Return a speaker with samples (seed of the vector, number of the model)."""
    made = tuple(VoiceSample(f"{n}", unit(seed), MODELS[model], 1000) for n, (seed, model) in enumerate(samples))
    return EnrolledSpeaker(name, 1, made)


SAMPLES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1)), min_size=1, max_size=4)


@given(asked=st.integers(0, 50), rosters=st.lists(SAMPLES, max_size=5), threshold=st.floats(-0.99, 0.99))
@settings(max_examples=60, deadline=None)
def test_nearest_speaker_of_same_model_matches(
    asked: int, rosters: list[list[tuple[int, int]]], threshold: float
) -> None:
    speakers = [enrolled(f"s{n}", *samples) for n, samples in enumerate(rosters)]
    found = match(VoiceEmbedding(unit(asked), MODELS[0]), speakers, threshold)
    scores = {}
    for n, samples in enumerate(rosters):
        known = [unit(seed).astype(float) for seed, model in samples if model == 0]
        if known:
            mean = np.mean(known, axis=0)
            scores[f"s{n}"] = float(mean @ unit(asked).astype(float) / np.linalg.norm(mean))
    if not scores:
        assert found == Match(None, -1.0)
        return
    assert found.score == pytest.approx(max(scores.values()), abs=1e-5)
    assert (found.name is not None) == (found.score >= threshold)
    if found.name is not None:
        assert scores[found.name] == pytest.approx(max(scores.values()), abs=1e-5)


def test_cancelling_or_mismatched_samples_match_nobody() -> None:
    samples = (VoiceSample("1", unit(1), MODELS[0], 1), VoiceSample("2", -unit(1), MODELS[0], 1))
    for direction, speaker in ((unit(1), EnrolledSpeaker("Anna", 1, samples)), (unit(1, 7), enrolled("Anna", (1, 0)))):
        assert match(VoiceEmbedding(direction, MODELS[0]), [speaker], -0.9) == Match(None, -1.0)


def test_strangers_are_numbered_from_zero_and_names_may_repeat() -> None:
    found = [Match(None, 0.1), Match("Anna", 0.9), Match(None, -1.0), Match("Anna", 0.7)]
    assert names_of(found) == ["Unknown 0", "Anna", "Unknown 1", "Anna"]
    assert names_of([]) == []
