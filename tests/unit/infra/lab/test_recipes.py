"""Graphs of published signatures can be added by recipe; the shipped YAMNet equals the converter's output."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from infra import models
from infra.examples import RECORDING
from infra.lab.converters import recipes
from infra.models.registry import Registry
from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.models import manifest
from streams.models.manifest import Manifest
from streams.models.sound_engine import OnnxSoundEngine
from tests import naive
from tests.recordings import YAMNET, YAMNET_CLASSES, rows
from tests.unit.streams.models.models import Axes, onnx_bytes
from topics.errors import EngineError
from topics.geometry import SESSIONS
from topics.media import parse

pytestmark = pytest.mark.slow

CLASSES = 527


def published(given: Axes, outputs: dict[str, int]) -> bytes:
    """Return a graph of a published signature: the mean over time, two layers of random weights."""
    draw = np.random.default_rng(0)
    features = 1 if len(given) == 2 else int(str(given[-2]))
    (scores, _), *embeddings = outputs.items()
    # Sixteen features keep the tests' graphs small; the embedding has its published size.
    constants = {
        "first": draw.normal(0, 0.1, (features, 16)).astype(np.float32),
        "second": draw.normal(0, 0.3, (16, CLASSES)).astype(np.float32),
        "row": np.array([1, features]),
    }
    steps = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[len(given) - 1], keepdims=0),
        helper.make_node("Reshape", ["mean", "row"], ["flat"]),
        helper.make_node("MatMul", ["flat", "first"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second"], ["sums"]),
        helper.make_node("Identity" if scores == "logits" else "Sigmoid", ["sums"], [scores]),
    ]
    for name, size in embeddings:
        constants["wide"] = np.ones((16, size), np.float32)
        steps.append(helper.make_node("MatMul", ["hidden", "wide"], [name]))
    return onnx_bytes(steps, {"x": given}, {name: ("n", size) for name, size in outputs.items()}, constants)


@pytest.mark.parametrize(
    ("recipe", "given", "outputs"),
    [
        ("panns-cnn14", ("n", "samples"), {"clipwise_output": CLASSES, "embedding": 2048}),
        ("efficientat", (1, 1, 128, 98), {"logits": CLASSES, "features": 960}),
        ("ced", ("batch_size", 64, "time_dim"), {"prob": CLASSES}),
    ],
)
def test_published_graph_is_added_and_analyses(
    tmp_path: Path, recipe: str, given: Axes, outputs: dict[str, int]
) -> None:
    path = tmp_path / "published.onnx"
    path.write_bytes(published(given, outputs))
    registry = Registry(tmp_path / "data")
    entry = registry.add(path, recipe=partial(recipes.write_model, recipe))
    assert isinstance(entry.manifest, Manifest)
    assert (entry.manifest.name, len(entry.manifest.classes)) == (recipe, CLASSES)
    registry.use(recipe)
    engine = OnnxSoundEngine(registry.find(recipe))
    pcm = decode_chunk(RECORDING.read_bytes(), parse("audio/flac"))
    analysis = Analysis(engine, SESSIONS, pcm.rate)
    packed = analysis.feed(pcm.samples) + analysis.finish()
    assert analysis.next_window == naive.window_count(SESSIONS, len(pcm.samples), pcm.rate) > 5
    assert len(packed) == analysis.next_window * len(engine.manifest.tags)


def test_graph_with_wrong_signature_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(published(("n", "samples"), {"clipwise_output": CLASSES}))
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
    for name in ("model.onnx", "NOTICE"):
        assert (entry.directory / name).read_bytes() == (shipped.directory / name).read_bytes(), name
    assert isinstance(shipped.manifest, Manifest)
    assert shipped.manifest.evaluation is not None
    with_heads = {tag.name for tag in shipped.manifest.tags if tag.head is not None}
    assert shipped.manifest.evaluation.tags.keys() == {tag.name for tag in shipped.manifest.tags}
    assert {name for name, counts in shipped.manifest.evaluation.tags.items() if counts.learnt} == with_heads


def test_table_of_tags_matches_shipped_model() -> None:
    """Models trained on AudioSet get their tags from it."""
    shipped = manifest.read(models.directory(models.YAMNET))
    names, table = rows(YAMNET_CLASSES), rows(models.directory(models.YAMNET) / "tags.csv")
    assert [row["display_name"] for row in names] == list(shipped.classes)
    assert [(row["tag"], row["category"]) for row in table] == [(tag.name, tag.category) for tag in shipped.tags]
    for row, tag in zip(table, shipped.tags, strict=True):
        if tag.head is None:
            assert row["audioset_classes"].split("|") == [shipped.classes[index] for index in tag.classes]
