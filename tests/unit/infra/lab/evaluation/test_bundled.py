"""Writing what was measured, and the table of tags, beside a bundled model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra import models
from infra.lab.evaluation import bundled, calibration, manifest_files
from infra.lab.evaluation.report import EvaluationReport
from infra.lab.evaluation.sound import point_at
from infra.models import manifests
from streams.models.manifest import Evaluation, Manifest, TagEvaluation


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for name in ("manifest.json", "tags.csv"):
        shutil.copyfile(models.directory() / name, tmp_path / name)
    return tmp_path


def test_figures_change_nothing_else(copied: Path) -> None:
    before = manifests.read(copied)
    evaluation = Evaluation("by ear", 3, {"Dog_bark": TagEvaluation(3, 2, 4, 2, 0.75)})
    bundled.write_figures(copied, EvaluationReport("x", (), (), {"clip_recall": 0.5}, evaluation=evaluation))
    after = manifests.read(copied)
    assert isinstance(after, Manifest)
    assert after.figures == {"clip_recall": 0.5}
    assert after.evaluation == evaluation
    assert after.model_id == before.model_id


def test_the_table_of_tags_is_that_of_the_manifest(copied: Path) -> None:
    manifest = manifests.read(copied)
    assert isinstance(manifest, Manifest)
    manifest_files.write_tags(copied, manifest)
    assert (copied / "tags.csv").read_bytes() == (models.directory() / "tags.csv").read_bytes()


def test_points_come_from_calibration() -> None:
    manifest = manifests.read(models.directory())
    assert isinstance(manifest, Manifest)
    levels = {point_at(int(level)) for level in calibration.GRID}
    for tag in manifest.tags:
        assert tag.point in levels, tag.name
        assert tag.clips or tag.point >= calibration.BLIND, tag.name
