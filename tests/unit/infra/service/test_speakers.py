"""Voice models in the service: loaded on demand, and a damaged one stops no job."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from infra import models
from infra.service.speakers import LoadedOnce, OverlapModel
from topics.errors import EngineError


def test_model_is_loaded_once_on_demand() -> None:
    made = iter([1, 2])
    model = LoadedOnce(lambda: next(made))
    assert (model(), model()) == (1, 1)
    assert next(made) == 2


def test_missing_model_is_logged_and_loaded_once_installed(tmp_path: Path) -> None:
    directory = tmp_path / "overlap"
    model = OverlapModel(directory)
    with capture_logs() as logs, pytest.raises(EngineError, match=r"^the model for it is missing or damaged$"):
        _ = model.manifest
    ((event, reason),) = [(line["event"], line["reason"]) for line in logs]
    assert event == "overlap.unusable"
    assert str(directory) in reason
    shutil.copytree(models.directory(models.OVERLAP), directory)
    assert model.manifest.name == "segmentation-overlap"
