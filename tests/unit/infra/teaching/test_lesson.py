"""Lessons: ten passages teach a sound; too few, ten equal ones and known names are refused with a message."""

import numpy as np
import pytest

from infra import models
from infra.teaching import background, lesson
from infra.teaching.names import check_name
from streams.models import manifest as manifests
from streams.models.own_sounds import dequantise, quantise, score
from topics.errors import BadRequest
from topics.ports.own_sounds import Mark

MANIFEST = manifests.read(models.directory())
assert MANIFEST.second is not None
GRAPH = MANIFEST.second.graph.sha256
DIMENSION = MANIFEST.second.dimension
AXIS = np.random.default_rng(1).normal(0, 2.5, (1, DIMENSION)).astype(np.float32)


def mark(number: int, right: bool = True, spread: float = 0.8) -> Mark:
    """Return a passage of three contexts around a sound unlike anything in the background."""
    random = np.random.default_rng(number)
    contexts = (
        (AXIS if right else -AXIS) + random.normal(0, spread, (3, DIMENSION)) + random.normal(0, spread, DIMENSION)
    )
    stored = quantise(contexts.astype(np.float32)).tobytes()
    return Mark(str(number), True, "job", 5000 * number, 5000 * number + 3000, right, GRAPH, stored)


@pytest.mark.usefixtures("part_of_background")
def test_sound_is_learnt_for_streams_and_recordings() -> None:
    learnt = lesson.learn([*map(mark, range(12)), mark(90, right=False)], MANIFEST)
    later = np.frombuffer(mark(50).embeddings, np.int8).reshape(-1, DIMENSION)
    for kind, head in (("streams", learnt.stream), ("recordings", learnt.recording)):
        figures = learnt.figures[kind]
        assert (figures.passages, figures.found) == (12, 1.0)
        assert 0 <= figures.false_per_minute <= lesson.FALSE_PER_MINUTE
        weights = np.frombuffer(head, "<f4").astype(np.float32)
        assert (score(weights, later) >= 0.5).all()
        if kind == "streams":
            others = background.read(MANIFEST, "stream")
            assert others is not None
            assert (score(weights, quantise(others.embeddings)) >= 0.5).mean() < 0.02
    assert learnt.stream != learnt.recording


def test_too_few_passages_are_rejected() -> None:
    with pytest.raises(BadRequest, match="9 passages are marked as the sound, and 10 are needed"):
        lesson.learn([*map(mark, range(9)), *(mark(number, right=False) for number in range(20, 40))], MANIFEST)


def test_identical_passages_are_rejected() -> None:
    with pytest.raises(BadRequest, match="the 11 passages are all alike"):
        lesson.learn([mark(number, spread=0.0) for number in range(11)], MANIFEST)


def test_quantised_embeddings_round_trip() -> None:
    stored = np.frombuffer(mark(1).embeddings, np.int8)
    assert np.array_equal(quantise(dequantise(stored)), stored)


@pytest.mark.parametrize("name", ["rain", "Ra in", "Rain!", "", "Ärger", "Rain\n", "R" * 41])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(BadRequest, match="is not a name of a sound"):
        check_name(name, [], "")


def test_known_name_is_rejected_with_advice() -> None:
    with pytest.raises(BadRequest, match=r"^the model knows a sound Rain already: choose another$"):
        check_name("Rain", ["Siren", "Rain"], "choose another")
    check_name("R" + "a" * 39, ["Rain"], "")
