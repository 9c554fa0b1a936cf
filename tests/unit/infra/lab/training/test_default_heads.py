"""Heads for tags of the bundled model: what they are blended with, and that points rest on held-out recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from infra import models
from infra.lab.training import default_heads
from infra.lab.training.clips import FOLDS, Clip
from infra.lab.training.default_heads import LEARNT, SHARE, EmbeddedClips
from infra.lab.training.embeddings import EmbeddedWindows
from streams.models.sound_engine import OnnxSoundEngine

YAMNET = models.directory()
DIMENSION = 6


def test_the_row_of_a_class_gives_its_score() -> None:
    engine = OnnxSoundEngine(YAMNET)
    patch = np.random.default_rng(5).normal(-4, 2, (96, 64)).astype(np.float32)
    classes, embedding = engine.embed(patch)
    for _, _, name in LEARNT:
        index = engine.manifest.classes.index(name)
        row = default_heads.class_row(YAMNET / engine.manifest.graph.file, index)
        logit = np.log(classes[index]) - np.log1p(-classes[index])
        # ONNX Runtime's sigmoid is an approximation.
        assert row[:-1] @ embedding + row[-1] == pytest.approx(logit, abs=0.2)


def material() -> EmbeddedClips:
    random = np.random.default_rng(3)
    clips, windows = [], []
    for number in range(160):
        label = "rain" if number % 8 == 0 else "dog"
        embeddings = random.normal(size=(5, DIMENSION)).astype(np.float32)
        embeddings[:, 0] += 4 * (label == "rain")
        clips.append(Clip(Path(f"{number}.ogg"), label, FOLDS[number // 40], "somebody", "CC0", ""))
        windows.append(EmbeddedWindows(embeddings, np.zeros(5, np.float32)))
    return EmbeddedClips(tuple(clips), tuple(windows))


def test_the_class_counts_half() -> None:
    given = material()
    rain = np.array([clip.label == "rain" for clip in given.clips])
    everything = np.ones(len(rain), np.bool_)
    own = np.arange(DIMENSION + 1, dtype=np.float32)
    alone = default_heads.blend_head(given, "rain", rain, everything, np.zeros_like(own))
    assert np.allclose(default_heads.blend_head(given, "rain", rain, everything, own) - alone, SHARE * own, atol=1e-5)


def test_the_point_keeps_its_budget_on_held_out_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    given = material()
    rain = np.array([clip.label == "rain" for clip in given.clips])
    own = np.zeros(DIMENSION + 1, np.float32)
    learnt: list[set[int]] = []
    whole = default_heads.blend_head

    def seen(*arguments: object) -> object:
        learnt.append({clip.fold for clip, some in zip(given.clips, arguments[3], strict=True) if some})  # type: ignore[call-overload]
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(default_heads, "blend_head", seen)
    monkeypatch.setattr(default_heads, "FALSE_PER_MINUTE", 1.0)
    point = default_heads.held_out_point(given, "rain", rain, own)
    assert [set(FOLDS) - folds for folds in learnt] == [{fold} for fold in FOLDS]
    monkeypatch.setattr(default_heads, "FALSE_PER_MINUTE", 4.0)
    assert default_heads.held_out_point(given, "rain", rain, own) < point
