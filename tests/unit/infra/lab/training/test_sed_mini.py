"""The small model that ships, and the way it was made."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest

from infra import models
from infra.lab.training import sed_mini
from infra.lab.training.clips import KNOWN
from infra.lab.training.material import SHARES, Material
from infra.lab.training.patches import window_grid
from streams.models.sound_engine import OnnxSoundEngine

HERE = models.directory("sed_mini")


def test_what_ships() -> None:
    manifest = OnnxSoundEngine(HERE).manifest
    assert (HERE / "model.onnx").stat().st_size <= 1_000_000
    assert [tag.name for tag in manifest.tags] == [name for _, name, _ in KNOWN]
    assert manifest.figures["ten_class_clip_accuracy"] >= 0.9
    made = sed_mini.manifest_of((HERE / "model.onnx").read_bytes(), manifest.points, manifest.figures)
    assert msgspec.structs.replace(manifest, evaluation=None) == made
    # It remembers what it was learnt from.
    assert manifest.evaluation is not None
    assert all(counts.learnt for counts in manifest.evaluation.tags.values())


def test_silence_and_hum_are_no_events() -> None:
    engine = OnnxSoundEngine(HERE)
    hum = 0.1 * np.sin(2 * np.pi * 50 * np.arange(16_000) / 16_000)
    for sound in (np.zeros(16_000), hum):
        (patch,) = window_grid(sound.astype(np.float32))
        assert (engine.scores(patch) < np.array(engine.manifest.points)).all()


def test_missing_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sed_mini.main(["--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("sed_mini: ")


def made_up(rows: int = 64) -> Material:
    random = np.random.default_rng(1)
    groups = np.arange(rows, dtype=np.int8) % len(SHARES)
    labels = np.zeros((rows, len(KNOWN)), np.float32)
    labels[groups == 0, 1] = 1.0
    return Material(
        patches=random.normal(-3, 2, (rows, 96, 64)).astype(np.float16),
        labels=labels,
        scores=random.random((rows, 521)).astype(np.float16),
        embeddings=random.random((rows, 1024)).astype(np.float16),
        groups=groups,
        folds=(1 + np.arange(rows) // 4 % 4).astype(np.int8),
    )


def test_training_is_repeatable() -> None:
    pytest.importorskip("torch", reason="torch is in the training extra alone")
    known = made_up()
    first, again, other = (sed_mini.train_int8(known, 2, seed, 1) for seed in (1, 1, 2))
    assert first == again != other
    session = onnxruntime.InferenceSession(first, providers=["CPUExecutionProvider"])
    scores, embedding = session.run(["scores", "embedding"], {"log_mel": known.patches[:3].astype(np.float32)})
    assert (scores.shape, embedding.shape) == ((3, len(KNOWN)), (3, 160))
    assert ((scores > 0) & (scores < 1)).all()
