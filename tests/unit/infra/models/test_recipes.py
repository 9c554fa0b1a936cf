"""Recipes: graphs of the published signatures, with random weights, score a recording as the definition says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from infra import models
from infra.examples import RECORDING
from infra.models import audioset, recipes
from infra.models.registry import Registry
from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.models import manifest
from streams.models.manifest import LogMel, Manifest
from streams.models.sound_engine import OnnxSoundEngine
from tests import naive
from tests.recordings import YAMNET
from topics.errors import EngineError
from topics.geometry import SESSIONS
from topics.media import parse

CLASSES = 527

Doubles = npt.NDArray[np.float64]
Axes = tuple[int | str, ...]


class Published:
    """A graph of a published signature: the mean over time, two layers of random weights."""

    def __init__(self, given: Axes, time: int, features: int, outputs: dict[str, int], logits: bool = False) -> None:
        draw = np.random.default_rng(0)
        # Sixteen features, so that the tests' graphs stay small; the embedding has its published size.
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
        """The class scores of the mean of a patch's frames."""
        scores: Doubles = 1 / (1 + np.exp(-(features @ self.first) @ self.second))
        return scores


def log_mel(recipe: str, samples: npt.NDArray[np.float32]) -> Doubles:
    front = recipes.RECIPES[recipe].input
    assert isinstance(front, LogMel)
    means: Doubles = naive.log_mel(front, samples)[: front.frames].mean(axis=0)
    return means


def test_the_classes_of_audioset() -> None:
    classes, tags = audioset.classes_and_tags()
    assert len(classes) == len(set(classes)) == CLASSES
    # Places that publications name.
    places = {0: "Speech", 34: "Child singing", 72: "Animal", 137: "Music", 278: "Sad music", 526: "Field recording"}
    assert {place: classes[place] for place in places} == places
    found = {tag.name: [classes[index] for index in tag.classes] for tag in tags}
    assert found["Dog_bark"] == [name for name in found["Dog_bark"] if name in classes]
    assert found["Male_speech"] == ["Male speech, man speaking"]
    # Tags that the bundled model scores by a head are tags of the others' classes.
    assert found["Chainsaw"] == ["Chainsaw"]
    assert {tag.name for tag in manifest.read(models.directory()).tags} <= set(found)
    assert "Speech" in found["Speech"]


@pytest.mark.parametrize(("recipe", "rate"), [("panns-cnn14", 32_000), ("panns-cnn14-16k", 16_000)])
def test_panns(tmp_path: Path, recipe: str, rate: int) -> None:
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
def test_efficientat(tmp_path: Path, given: Axes) -> None:
    published = Published(given, len(given) - 1, 128, {"logits": CLASSES, "features": 960}, logits=True)
    engine = added(tmp_path, "efficientat", published)
    check_log_mel(engine, published, "efficientat")
    assert analysed(engine)[0] > 5


@pytest.mark.parametrize("given", [("batch_size", 64, "time_dim"), (1, 64, 96)])
def test_ced(tmp_path: Path, given: Axes) -> None:
    published = Published(given, 2, 64, {"prob": CLASSES})
    engine = added(tmp_path, "ced", published)
    check_log_mel(engine, published, "ced")
    assert analysed(engine)[0] > 5


def check_log_mel(engine: OnnxSoundEngine, published: Published, recipe: str) -> None:
    from streams.audio import logmel

    front = engine.manifest.input
    assert isinstance(front, LogMel)
    wave = np.random.default_rng(1).normal(0, 0.1, front.samples).astype(np.float32)
    expected = published.scores(log_mel(recipe, wave))
    scores = engine.scores(logmel.log_mel_frames(front, wave))
    assert np.allclose(scores, tag_scores(engine.manifest, expected), atol=1e-4)
    assert np.ptp(scores) > 0.1


def tag_scores(manifest: Manifest, classes: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.array([max(classes[index] for index in tag.classes) for tag in manifest.tags], classes.dtype)


def added(tmp_path: Path, recipe: str, published: Published) -> OnnxSoundEngine:
    path = tmp_path / "published.onnx"
    onnx.save(published.model, path)
    registry = Registry(tmp_path / "data")
    entry = registry.add(path, recipe=recipe)
    assert isinstance(entry.manifest, Manifest)
    assert (entry.manifest.name, len(entry.manifest.classes)) == (recipe, CLASSES)
    registry.use(recipe)
    return OnnxSoundEngine(entry.directory)


def analysed(engine: OnnxSoundEngine) -> tuple[int, int]:
    """Analyse the bundled recording as sessions do; return how many windows it has, and its rate."""
    pcm = decode_chunk(RECORDING.read_bytes(), parse("audio/flac"))
    analysis = Analysis(engine, SESSIONS, pcm.rate)
    windows = [analysis.feed(pcm.samples), analysis.finish()]
    count = sum(scored.count for scored in windows)
    assert sum(len(scored.packed) for scored in windows) == count * len(engine.manifest.tags)
    assert count == naive.window_count(SESSIONS, len(pcm.samples), pcm.rate)
    return count, pcm.rate


def test_a_graph_of_another_signature(tmp_path: Path) -> None:
    onnx.save(Published(("n", "samples"), 1, 1, {"clipwise_output": CLASSES}).model, tmp_path / "m.onnx")
    registry = Registry(tmp_path / "data")
    for recipe, fault in {
        "panns-cnn14": "has no output embedding, only clipwise_output",
        "ced": r"takes tensor\(float\) \['n', 'samples'\], expected tensor\(float\) \[1, 64, 96\]",
    }.items():
        with pytest.raises(EngineError, match=fault):
            registry.add(tmp_path / "m.onnx", recipe=recipe)


def test_yamnets_own_file(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    shipped = next(entry for entry in registry.entries() if entry.directory == registry.find("yamnet"))
    entry = registry.add(YAMNET, recipe="yamnet", name="again")
    assert entry.model_id.partition("@")[2] == shipped.model_id.partition("@")[2]
    assert (entry.directory / "NOTICE").is_file()
