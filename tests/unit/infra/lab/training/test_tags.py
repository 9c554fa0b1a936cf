"""A learnt tag: what is said of it is said by heads that did not see the recording; the point keeps its budget."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from infra.lab.training import heads, tags
from infra.lab.training.embeddings import EmbeddedWindows
from infra.lab.training.negatives import FOLDS, USER_LABEL, Negatives, folds_of
from streams.models.protocol import Floats

DIMENSION = 8
RECORDINGS, EACH = 100, 6


def vectors(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)


def sounds(count: int, axis: int = 0, seed: int = 2) -> list[EmbeddedWindows]:
    embeddings = vectors(count * EACH, seed).reshape(count, EACH, DIMENSION)
    embeddings[..., axis] += 5
    return [EmbeddedWindows(one, np.zeros(EACH, np.float32)) for one in embeddings]


def negatives() -> Negatives:
    recording = np.repeat(np.arange(RECORDINGS), EACH)
    label = np.where(recording < 20, USER_LABEL, np.where(recording < 60, "wind", "rain"))
    return Negatives(vectors(len(recording)), recording, recording % FOLDS, label)


def test_the_point_keeps_the_budget() -> None:
    learnt = tags.learn_tag(sounds(12), negatives(), 1.0)
    figures = learnt.figures
    assert (figures.clips, figures.recall, learnt.left_out) == (12, 1.0, ())
    assert figures.average_precision > 0.99
    assert figures.given_minutes == pytest.approx(20 * EACH / 120)
    assert figures.background_minutes == pytest.approx(80 * EACH / 60)
    events = figures.false_on_given * figures.given_minutes + figures.false_on_background * figures.background_minutes
    assert 0 < events <= figures.given_minutes + figures.background_minutes
    stricter = tags.learn_tag(sounds(12), negatives(), 0.0)
    assert stricter.figures.false_on_given == stricter.figures.false_on_background == 0
    # A lower budget moves the point, which is in the bias, and nothing else.
    assert np.array_equal(stricter.head[:-1], learnt.head[:-1])
    assert stricter.head[-1] < learnt.head[-1]


def test_what_is_said_of_a_recording_is_said_without_it() -> None:
    """One recording is unlike the others: learnt from, it would be found."""
    odd = sounds(1, axis=5, seed=3)[0]
    positives = [*sounds(11), odd]
    own, _ = tags.held_out_logits(positives, negatives(), heads.feature_space(negatives().embeddings))
    assert own[-1] < own[:-1].min()
    head = heads.learn_head(
        positives, negatives().embeddings, negatives().weights, heads.feature_space(negatives().embeddings)
    )
    assert heads.logits(head, odd.embeddings).max() > own[-1] + 1


def test_neighbours_are_held_out_together() -> None:
    assert folds_of(10).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert folds_of(0).tolist() == []


def test_the_sound_in_the_background_is_left_out() -> None:
    against = negatives()
    same = np.concatenate([one.embeddings for one in sounds(8, seed=4)])
    at = np.repeat(np.arange(RECORDINGS, RECORDINGS + 8), EACH)
    with_it = Negatives(
        np.concatenate((against.embeddings, same)),
        np.concatenate((against.recording, at)),
        np.concatenate((against.fold, at % FOLDS)),
        np.concatenate((against.label, np.full(len(at), "bark"))),
    )
    learnt = tags.learn_tag(sounds(12), with_it, 1.0)
    assert learnt.left_out == ("bark",)
    assert learnt.figures.recall == 1.0
    # What was given is never left out: it is known not to be the sound.
    given = msgspec.structs.replace(with_it, label=np.where(with_it.label == "bark", USER_LABEL, with_it.label))
    assert tags.learn_tag(sounds(12), given, 1.0).left_out == ()


def test_what_was_given_counts_as_much_as_the_background() -> None:
    against = negatives()
    given = against.label == USER_LABEL
    assert against.weights[given].sum() == pytest.approx(0.5)
    assert against.weights[~given].sum() == pytest.approx(0.5)
    assert against.without(["wind", "rain"]).weights.sum() == pytest.approx(1.0)
    assert against.without([USER_LABEL]).weights.sum() == pytest.approx(1.0)
