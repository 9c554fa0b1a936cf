"""ONNX models: tags from classes, the same bits from any thread, and faults in one line."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streams.engines.manifest import Graph, Waveform
from streams.engines.onnx import OnnxEngine
from streams.engines.protocol import Engine, Floats
from tests.unit.engines import models
from topics.errors import EngineError


def patch(*classes: float) -> Floats:
    return np.array([*classes, *[0.0] * (models.PATCH - len(classes))], np.float32)


def test_a_tag_is_the_maximum_of_its_classes(tmp_path: Path) -> None:
    engine: Engine = OnnxEngine(models.write(tmp_path))
    scores = engine.scores(patch(0.125, 0.25, 0.5, 0.75))
    assert (scores.dtype.name, scores.tolist()) == ("float32", [0.125, 0.75])
    assert engine.scores(patch(0.5, 0.25, 0.5, 0.0)).tolist() == [0.5, 0.5]


def test_threads_share_an_engine(tmp_path: Path) -> None:
    engine = OnnxEngine(models.write(tmp_path))
    values = [n / 256 for n in range(256)]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda value: engine.scores(patch(value))[0], values))
    assert got == values


def test_a_patch_of_another_shape(tmp_path: Path) -> None:
    engine = OnnxEngine(models.write(tmp_path))
    with pytest.raises(EngineError, match=r"^tiny@\w{8}: .*[Ii]nvalid [^\n]*$"):
        engine.scores(np.zeros(models.PATCH - 1, np.float32))


@pytest.mark.parametrize("patch_length", [models.PATCH - 1, models.PATCH + 1])
def test_input_and_manifest_disagree(tmp_path: Path, patch_length: int) -> None:
    other = msgspec.structs.replace(models.MANIFEST, input=Waveform(1000, patch_length))
    with pytest.raises(EngineError, match=rf"model.onnx: takes .*400.*, expected .*{patch_length}"):
        OnnxEngine(models.write(tmp_path, other))


def test_output_and_manifest_disagree(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"model.onnx: gives .*5.*, but the manifest has 4 classes"):
        OnnxEngine(models.write(tmp_path, data=models.graph(outputs=5)))


def test_another_file_than_the_manifest_was_made_for(tmp_path: Path) -> None:
    path = models.write(tmp_path) / "model.onnx"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(EngineError, match=r"model.onnx: not the file .* SHA-256"):
        OnnxEngine(tmp_path)


def test_no_graph(tmp_path: Path) -> None:
    (models.write(tmp_path) / "model.onnx").unlink()
    with pytest.raises(EngineError, match=r"model.onnx: No such file"):
        OnnxEngine(tmp_path)


@pytest.mark.parametrize("data", [b"no graph", models.graph(operator="Nonsense")])
def test_not_a_graph(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EngineError, match=r"model\.onnx: [^\n]+$"):
        OnnxEngine(models.write(tmp_path, data=data))


def test_the_graph_file_is_named_by_the_manifest(tmp_path: Path) -> None:
    named = msgspec.structs.replace(models.MANIFEST, graph=Graph("other.onnx", ""))
    assert OnnxEngine(models.write(tmp_path, named)).manifest.graph.file == "other.onnx"
