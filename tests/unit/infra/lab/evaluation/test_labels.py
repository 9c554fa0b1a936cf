"""What labels mean, against the tags of the default model."""

from __future__ import annotations

from infra import models
from infra.lab.evaluation import labels
from streams.models import manifest

TAGS = manifest.read(models.directory()).tags
NAMES = [tag.name for tag in TAGS]


def meant(label: str) -> tuple[set[str], set[str]]:
    true, allowed = labels.columns(labels.LABELS[label], TAGS)
    return {NAMES[column] for column in true}, {NAMES[column] for column in allowed}


def test_the_default_model_has_every_tag() -> None:
    for label, meaning in labels.LABELS.items():
        assert {*meaning.true, *meaning.tolerated} <= set(NAMES), label
        assert not set(meaning.true) & set(meaning.tolerated), label
    assert len(labels.LABELS) == 51
    assert all(tag in labels.LABELS[label].true for label, tag in labels.TEN.items())


def test_true_and_tolerated() -> None:
    assert meant("dog") == ({"Dog_bark"}, {"Dog_bark", "Dog_growl", "Dog_howl"})
    true, allowed = meant("glass_breaking")
    assert true == {"Glass_break"}
    assert "Break" in allowed - true  # they share a class


def test_a_model_with_other_tags() -> None:
    assert labels.columns(labels.LABELS["dog"], TAGS[:1]) == ([], [])
    assert labels.columns(labels.LABELS["can_opening"], TAGS) == ([], [])
