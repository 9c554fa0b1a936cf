"""The converter: the same bytes each time, the same scores as with float weights, and refusals in a line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest

from infra import models
from streams.models import manifest
from tests.recordings import YAMNET, YAMNET_CLASSES


@pytest.fixture
def sources() -> list[str]:
    """The converter's arguments."""
    return [str(file) for file in (YAMNET, YAMNET_CLASSES, models.directory() / "tags.csv")]


def run(*arguments: str) -> int:
    from infra.models import convert_yamnet

    return convert_yamnet.main(list(arguments))


def test_gives_what_ships(sources: list[str], tmp_path: Path) -> None:
    assert run(*sources, str(tmp_path)) == 0
    for name in ("model.onnx", "NOTICE"):
        assert (tmp_path / name).read_bytes() == (models.directory() / name).read_bytes(), name
    # Heads, and what was measured, are added by infra.lab.training.default_heads and `earshot evaluate --write`.
    shipped, made = manifest.read(models.directory()), manifest.read(tmp_path)
    with_heads = {tag.name for tag in shipped.tags if tag.head is not None}
    assert [tag.name for tag in made.tags] == [tag.name for tag in shipped.tags]
    assert all(ours in shipped.tags for ours in made.tags if ours.name not in with_heads)
    bare = msgspec.structs.replace(shipped, figures={}, evaluation=None, heads=None, tags=())
    assert msgspec.structs.replace(made, tags=()) == bare
    assert shipped.evaluation is not None
    assert shipped.evaluation.tags.keys() == {tag.name for tag in shipped.tags}
    assert {name for name, counts in shipped.evaluation.tags.items() if counts.learnt} == with_heads


def test_scores_equal_those_of_float_weights(sources: list[str], tmp_path: Path) -> None:
    assert run(*sources, str(tmp_path), "--float") == 0
    ours, floats = (
        onnxruntime.InferenceSession(str(directory / "model.onnx"), providers=["CPUExecutionProvider"])
        for directory in (models.directory(), tmp_path)
    )
    patches = np.random.default_rng(0).normal(-3, 2, (8, 96, 64)).astype(np.float32)
    scores = ours.run(None, {"log_mel": patches})[0]
    assert scores.shape == (8, 521)
    assert np.abs(scores - floats.run(None, {"log_mel": patches})[0]).max() < 1e-5
    assert manifest.read(tmp_path).model_id != manifest.read(models.directory()).model_id


def test_a_class_that_does_not_exist(sources: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tags = tmp_path / "tags.csv"
    tags.write_text("tag,category,audioset_classes,name_from,point\nRain,Outdoor,Rain|Frogs falling,added,0.3\n")
    assert run(*sources[:2], str(tags), str(tmp_path)) == 2
    assert capsys.readouterr().err == (
        "convert_yamnet: tags.csv: 'Frogs falling' is not a class of yamnet_class_map.csv\n"
    )


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none")
    assert run(missing, missing, missing, str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith("convert_yamnet: ")
