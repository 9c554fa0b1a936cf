"""The notice names whom it must, and licences that do not allow training are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import models
from infra.lab.training.attribution import notice
from infra.lab.training.clips import Clip, read_clips
from tests.recordings import TRAINING
from topics.errors import EngineError


def clip(author: str, licence: str, label: str = "dog") -> Clip:
    return Clip(Path(f"{author}.ogg"), label, 1, author, licence, f"http://sounds/{author}")


def test_names() -> None:
    reader = clip("LibriSpeech reader 17", "CC-BY-4.0", "speech")
    text = notice([clip("zoe", "CC-BY"), clip("Ann", "CC-BY"), clip("Free", "CC0"), reader])
    assert text.index("\nAnn\n  http://sounds/Ann\n") < text.index("\nzoe\n")
    assert "Free" not in text
    assert text.endswith("LibriSpeech readers:\n  17\n")
    assert "1 clips in the public domain" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_other_licences_are_refused() -> None:
    with pytest.raises(EngineError, match=r"^x\.ogg: licence 'CC-BY-NC' is none of CC0, CC-BY, CC-BY-4\.0$"):
        notice([clip("x", "CC-BY-NC")])


def test_what_ships_is_attributed() -> None:
    shipped = (models.directory("sed_mini") / "NOTICE").read_text(encoding="utf-8")
    assert shipped == notice(read_clips(TRAINING))
