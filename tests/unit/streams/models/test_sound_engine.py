"""ONNX models: tags from classes, the same bits from any thread, and faults in one line."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
from onnx import TensorProto

from infra.models import directory
from streams.models.manifest import Graph, Heads, LogMel, Output, Waveform
from streams.models.protocol import Floats, SoundEngine
from streams.models.sound_engine import OnnxSoundEngine
from tests.unit.streams.models import models
from topics.errors import EngineError


def patch(*classes: float) -> Floats:
    return np.array([*classes, *[0.0] * (models.PATCH - len(classes))], np.float32)


def test_a_tag_is_the_maximum_of_its_classes(tmp_path: Path) -> None:
    engine: SoundEngine = OnnxSoundEngine(models.write(tmp_path))
    scores = engine.scores(patch(0.125, 0.25, 0.5, 0.75))
    assert (scores.dtype.name, scores.tolist()) == ("float32", [0.125, 0.75])
    assert engine.scores(patch(0.5, 0.25, 0.5, 0.0)).tolist() == [0.5, 0.5]


def test_threads_share_an_engine(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path))
    values = [n / 256 for n in range(256)]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda value: engine.scores(patch(value))[0], values))
    assert got == values


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 9])
def test_patches_together_score_as_one_by_one(tmp_path: Path, count: int) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path))
    patches = [patch(n / 16, 0.25, 0.5, 0.75 - n / 16) for n in range(count)]
    together = engine.scores_of(patches)
    assert [scores.tolist() for scores in together] == [engine.scores(one).tolist() for one in patches]


@pytest.mark.parametrize("model", ["yamnet", "sed_mini"])
def test_bundled_models_run_in_batches(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = OnnxSoundEngine(directory(model))
    patches = [*np.random.default_rng(1).normal(-2, 3, (7, 96, 64)).astype(np.float32)]
    alone = [engine.scores(one).tobytes() for one in patches]
    sizes: list[int] = []
    run = engine._session.run

    class Session:
        def run(self, outputs: list[str], inputs: dict[str, Floats]) -> list[Floats]:
            sizes.append(len(next(iter(inputs.values()))))
            arrays: list[Floats] = run(outputs, inputs)
            return arrays

    monkeypatch.setattr(engine, "_session", Session())
    assert [scores.tobytes() for scores in engine.scores_of(patches)] == alone
    assert sizes == [4, 2, 1]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(models.graph(axes=(1, models.PATCH)), id="takes one at a time"),
        pytest.param(models.graph(axes=(models.PATCH,)), id="has no axis for them"),
        pytest.param(models.graph(given=(1, models.CLASSES)), id="says that it gives one"),
        pytest.param(models.graph(operator="Softmax"), id="scores depend on the batch"),
    ],
)
def test_models_that_take_one_patch_get_one(tmp_path: Path, data: bytes) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path, data=data))
    patches = [patch(n / 16, 0.25, 0.5, 0.75) for n in range(6)]
    assert [scores.tolist() for scores in engine.scores_of(patches)] == [engine.scores(one).tolist() for one in patches]


def test_a_patch_of_another_shape(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path))
    with pytest.raises(EngineError, match=r"^tiny@\w{8}-\w{6}: cannot reshape [^\n]*$"):
        engine.scores(np.zeros(models.PATCH - 1, np.float32))


@pytest.mark.parametrize("patch_length", [models.PATCH - 1, models.PATCH + 1])
def test_input_and_manifest_disagree(tmp_path: Path, patch_length: int) -> None:
    other = msgspec.structs.replace(models.MANIFEST, input=Waveform(1000, patch_length))
    with pytest.raises(EngineError, match=rf"model.onnx: takes .*800.*, expected .*{patch_length}"):
        OnnxSoundEngine(models.write(tmp_path, other))


@pytest.mark.parametrize(
    "axes",
    [
        (1, models.PATCH),
        (None, None),
        ("batch", "time"),
        (models.PATCH,),
        ("time",),
        ("n", 1, models.PATCH),
        (1, 1, "time"),
    ],
)
def test_waveforms_go_in_as_the_graph_wants_them(tmp_path: Path, axes: tuple[int | str | None, ...]) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path, data=models.graph(axes=axes, given=[None, None])))
    assert engine.scores(patch(0.125, 0.25, 0.5, 0.75)).tolist() == [0.125, 0.75]


@pytest.mark.parametrize("axes", [(2, models.PATCH), ("n", 2, models.PATCH), ("n", 1, 1, models.PATCH), ()])
def test_other_inputs_are_refused(tmp_path: Path, axes: tuple[int | str, ...]) -> None:
    with pytest.raises(EngineError, match=r"model.onnx: takes tensor\(float\) \[.*\], expected .* \[1, 800\]$"):
        OnnxSoundEngine(models.write(tmp_path, data=models.graph(axes=axes)))


def test_other_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"takes tensor\(double\) "):
        OnnxSoundEngine(models.write(tmp_path, data=models.graph(kind=TensorProto.DOUBLE)))


@pytest.mark.parametrize(
    ("axes", "layout"),
    [
        (("n", 50, 8), "frames-bands"),
        (("n", 1, "frames", 8), "frames-bands"),
        ((1, 8, 50), "bands-frames"),
        (("n", 1, 8, "frames"), "bands-frames"),
    ],
)
def test_log_mel_goes_in_as_the_graph_wants_it(
    tmp_path: Path, axes: tuple[int | str, ...], layout: Literal["frames-bands", "bands-frames"]
) -> None:
    front = LogMel(1000, 50, 8, 20, 10, 32, 0.0, 500.0, 1e-3, layout=layout)
    known = msgspec.structs.replace(models.MANIFEST, input=front)
    engine = OnnxSoundEngine(models.write(tmp_path, known, models.graph(axes=axes)))
    frames = np.zeros((50, 8), np.float32)
    frames[0, 1], frames[1, 0] = 0.25, 0.75
    assert engine.scores(frames)[1] == (0.25 if layout == "frames-bands" else 0.75)
    other = msgspec.structs.replace(known, input=msgspec.structs.replace(front, bands=9))
    with pytest.raises(EngineError, match=r"model.onnx: takes .*8.*, expected .*9"):
        OnnxSoundEngine(models.write(tmp_path, other, models.graph(axes=axes)))


def test_logits(tmp_path: Path) -> None:
    known = msgspec.structs.replace(models.MANIFEST, output=Output(activation="sigmoid"))
    engine = OnnxSoundEngine(models.write(tmp_path, known))
    expected = 1 / (1 + np.exp(-np.array([-1.0, 3.0])))
    assert np.allclose(engine.scores(patch(-1.0, 3.0, -200.0, 2.0)), expected, atol=1e-7)


def test_outputs_by_name(tmp_path: Path) -> None:
    known = msgspec.structs.replace(models.MANIFEST, output=Output(scores="clipwise"))
    with pytest.raises(EngineError, match=r"model.onnx: has no output clipwise, only scores"):
        OnnxSoundEngine(models.write(tmp_path, known))


def test_heads_score_tags_by_the_embedding(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(with_heads(tmp_path, np.array([[0, 0, 0, 0, -9], [2, 0, 0, 0, 1]], np.float32)))
    # The tag's class gives 0, its head 2 x 0.5 + 1.
    assert np.allclose(engine.scores(patch(0.5)), [0.5, 1 / (1 + np.exp(-2.0))])
    classes, embedding = engine.embed(patch(0.5, 0.25))
    assert classes.tolist() == embedding.tolist() == [0.5, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        (np.zeros((2, 4), np.float32), "gives embeddings of 4, but its heads are for 3"),
        (np.zeros((1, 5), np.float32), "tag Any asks for head 1, but there are 1"),
        (np.zeros((2, 5)), "expected finite float32"),
        (np.full((2, 5), np.nan, np.float32), "expected finite float32"),
        (np.zeros(5, np.float32), "expected finite float32"),
    ],
)
def test_heads_that_do_not_fit(tmp_path: Path, weights: Floats, fault: str) -> None:
    with pytest.raises(EngineError, match=fault):
        OnnxSoundEngine(with_heads(tmp_path, weights))


def test_no_embedding(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="gives no embedding"):
        OnnxSoundEngine(models.write(tmp_path)).embed(patch())


def with_heads(directory: Path, weights: Floats) -> Path:
    """A model whose second tag has head 1 besides its classes."""
    np.save(directory / "heads.npy", weights)
    sha256 = hashlib.sha256((directory / "heads.npy").read_bytes()).hexdigest()
    tags = (models.MANIFEST.tags[0], msgspec.structs.replace(models.MANIFEST.tags[1], head=1))
    known = msgspec.structs.replace(
        models.MANIFEST, tags=tags, heads=Heads("heads.npy", sha256), output=Output(embedding="scores")
    )
    return models.write(directory, known)


def test_output_and_manifest_disagree(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"model.onnx: gives 5 scores, but the manifest has 4 classes"):
        OnnxSoundEngine(models.write(tmp_path, data=models.graph(outputs=5)))


def test_another_file_than_the_manifest_was_made_for(tmp_path: Path) -> None:
    path = models.write(tmp_path) / "model.onnx"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(EngineError, match=r"model.onnx: not the file .* SHA-256"):
        OnnxSoundEngine(tmp_path)


def test_no_graph(tmp_path: Path) -> None:
    (models.write(tmp_path) / "model.onnx").unlink()
    with pytest.raises(EngineError, match=r"model.onnx: No such file"):
        OnnxSoundEngine(tmp_path)


@pytest.mark.parametrize("data", [b"no graph", models.graph(operator="Nonsense")])
def test_not_a_graph(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EngineError, match=r"model\.onnx: [^\n]+$"):
        OnnxSoundEngine(models.write(tmp_path, data=data))


def test_the_graph_file_is_named_by_the_manifest(tmp_path: Path) -> None:
    named = msgspec.structs.replace(models.MANIFEST, graph=Graph("other.onnx", ""))
    assert OnnxSoundEngine(models.write(tmp_path, named)).manifest.graph.file == "other.onnx"
