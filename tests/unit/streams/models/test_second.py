"""A bundle's second model: its outputs for a context, both models combined, own sounds, and invalid bundles."""

import hashlib
import io
from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import helper

from streams.audio.analysis import NOTHING, Analysis
from streams.models import heads
from streams.models.loaded_models import LoadedModels, SoundModel
from streams.models.manifest import (
    FILE,
    Context,
    Graph,
    Heads,
    LogMel,
    Manifest,
    ModelTag,
    Output,
    SecondModel,
    SecondTag,
)
from streams.models.own_sounds import LARGEST, OwnColumns, dequantise, own_columns, quantise, score, widths
from streams.models.protocol import Floats
from streams.models.second import EDGE, logit
from streams.models.sound_engine import OnnxSoundEngine
from tests.audio import noise
from tests.unit.streams.audio.engines import TAGS as COUNT
from tests.unit.streams.audio.engines import Fingerprint, Pair
from tests.unit.streams.models.models import MANIFEST, onnx_bytes, write
from topics.choices import Choices
from topics.errors import EngineError
from topics.geometry import SESSIONS
from topics.hearing import Hearing, OwnSound, parts_of

BANDS = 4
#: At the rate of the tiny first model.
FRONT = LogMel(1000, 20, BANDS, 16, 10, 16, 0.0, 500.0, 1e-10, layout="bands-frames")
WEIGHTS = np.array([[1, 0, 0, 0, -1], [0, 2, 0, 0, 0.5]], np.float32)
#: By class, by head, by both, and by the first model alone.
MISSING = Heads("second.npy", "0" * 64)
TAGS = (SecondTag((2, 0)), SecondTag((), 1), SecondTag((3,), 0), SecondTag())
GIVEN = (0.1, 0.2, 0.3, 0.4)


def second_graph() -> bytes:
    """Return a graph whose embedding is the mean of the frames, and whose scores are its logistic."""
    nodes = [
        helper.make_node("ReduceMean", ["mel"], ["embedding"], axes=[2], keepdims=0),
        helper.make_node("Sigmoid", ["embedding"], ["prob"]),
    ]
    return onnx_bytes(nodes, {"mel": (1, BANDS, "frames")}, dict.fromkeys(("embedding", "prob"), (1, BANDS)))


def bundle(directory: Path, **changes: object) -> Path:
    """Write a bundle whose first model scores four tags by its samples."""
    file, graph = io.BytesIO(), second_graph()
    np.save(file, WEIGHTS)
    (directory / "second.npy").write_bytes(file.getvalue())
    (directory / "second.onnx").write_bytes(graph)
    learnt = Heads("second.npy", hashlib.sha256(file.getvalue()).hexdigest())
    second = SecondModel(
        "ears", "1", "CC0-1.0", "here", Graph("second.onnx", hashlib.sha256(graph).hexdigest()), FRONT,
        Output("prob", "embedding"), BANDS, TAGS, 0.25, 0.5,
        stream=Context(6, 1000, learnt, (0.5,) * 4), recording=Context(20, 1000, learnt, (0.2, 0.4, 0.6, 0.8)),
    )  # fmt: skip
    tags = tuple(ModelTag(f"Tag_{number}", "Test", (number,), 0.5) for number in range(4))
    manifest: Manifest = msgspec.structs.replace(MANIFEST, tags=tags, second=msgspec.structs.replace(second, **changes))
    return write(directory, manifest)


def context(frames: int) -> Floats:
    return np.tile(np.array(GIVEN, np.float32), (frames, 1))


@pytest.mark.parametrize("recording", [False, True])
def test_tag_score_is_mean_logit_of_class_and_head(tmp_path: Path, recording: bool) -> None:
    engine = OnnxSoundEngine(bundle(tmp_path))
    assert engine.manifest.points(recording) == ((0.2, 0.4, 0.6, 0.8) if recording else (0.5,) * 4)
    assert engine.second is not None
    found, _ = engine.second.hear(context(20 if recording else 6), recording)
    # A class's logit is the number of its band; the heads' are those of the two rows of WEIGHTS.
    np.testing.assert_allclose(found, [0.3, 2 * 0.2 + 0.5, (0.4 + 0.1 - 1) / 2, 0.0], atol=1e-6)


def test_second_model_runs_only_above_gate(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(bundle(tmp_path))
    assert engine.second is not None
    heard = np.array([1.0, -1.0, 2.0, 0.0], np.float32)
    loud, soft = np.array([0.6, 0.1, 0.0, 0.2], np.float32), np.array([0.4, 0.1, 0.0, 0.2], np.float32)
    weight = np.array([0.25, 0.25, 0.25, 0.0], np.float32)
    got = engine.second.combine(loud, lambda: heard)
    np.testing.assert_allclose(got, heads.logistic(weight * heard + (1 - weight) * logit(loud)), atol=1e-6)
    # Below the gate the second model is not run; it never affects the last tag.
    got = engine.second.combine(soft, lambda: pytest.fail("looked"))
    nothing = logit(np.zeros(1, np.float32))
    np.testing.assert_allclose(got, heads.logistic(weight * nothing + (1 - weight) * logit(soft)), atol=1e-6)
    assert got[3] == pytest.approx(0.2)


def test_logits_of_certain_scores_are_limited() -> None:
    certain = np.array([0.0, 1.0], np.float32)
    assert logit(certain).tolist() == logit(np.array([EDGE, 1 - EDGE], np.float32)).tolist()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"graph": Graph("second.onnx", "0" * 64)}, "second.onnx: not the file that the manifest was made for"),
        ({"graph": Graph("../second.onnx", "0" * 64)}, "expected a file beside the manifest"),
        ({"tags": TAGS[:3]}, "second.tags has 3 tags, expected 4"),
        ({"tags": (*TAGS[:3], SecondTag((4,)))}, "second.tags needs class indices from 0 to 3"),
        ({"tags": (*TAGS[:3], SecondTag((), 2))}, "a tag asks for head 2, but there are 2"),
        ({"weight": 1.5}, "second.weight and gate are 1.5 and 0.5"),
        ({"classes": 5}, r"gives scores \(4,\), expected 5"),
        ({"output": Output("prob")}, "second.output.embedding names no output"),
        ({"output": Output("none", "embedding")}, "ears: "),
        ({"input": msgspec.structs.replace(FRONT, sample_rate=2000)}, "second.input.sample_rate is 2000, expected"),
        ({"stream": Context(21, 1000, MISSING, (0.5,) * 4)}, "second.stream.frames is 21, expected"),
        ({"stream": Context(6, 300, MISSING, (0.5,) * 4)}, "second.stream.hop_ms is 300, expected"),
        ({"stream": Context(6, 1000, MISSING, (0.5,) * 3)}, "second.stream.points needs a number"),
        ({"stream": Context(6, 1000, MISSING, (0.5,) * 4)}, "second.npy: not the file"),
    ],
)  # fmt: skip
def test_invalid_bundles_are_rejected(tmp_path: Path, changes: dict[str, object], fault: str) -> None:
    with pytest.raises(EngineError, match=fault) as refusal:
        OnnxSoundEngine(bundle(tmp_path, **changes))
    assert "\n" not in str(refusal.value)


def test_model_id_depends_on_second_model(tmp_path: Path) -> None:
    bundle(tmp_path)
    manifest = msgspec.json.decode((tmp_path / FILE).read_bytes(), type=Manifest)
    assert manifest.second is not None
    for change, same in (
        ({"licence": "MIT"}, True),
        ({"gate": 0.4}, False),
        ({"stream": manifest.second.recording}, False),
    ):
        changed = msgspec.structs.replace(manifest, second=msgspec.structs.replace(manifest.second, **change))
        assert (changed.model_id == manifest.model_id) is same


DIMENSION = COUNT
GRAPH = "0" * 64
HEADS = np.random.default_rng(1).normal(size=(2, 2, DIMENSION + 1)).astype("<f4")
KEEPS = Choices(keep_embeddings=True)
HEARING = Hearing(("Kettle", "Lathe"), HEADS.tobytes(), KEEPS)


def test_embedding_is_quantised_to_255_steps() -> None:
    embedding = np.linspace(-2 * LARGEST, 2 * LARGEST, 401).astype(np.float32)
    again = dequantise(quantise(embedding))
    inside = np.abs(embedding) <= LARGEST
    assert np.abs(again - embedding)[inside].max() <= LARGEST / 254 + 1e-6
    assert np.abs(again).max() == pytest.approx(LARGEST)


def test_embedding_scores_same_alone_as_in_batch() -> None:
    stored = np.random.default_rng(2).integers(-127, 128, (1000, 192)).astype(np.int8)
    head = np.random.default_rng(3).normal(size=193).astype(np.float32)
    together = score(head, stored)
    assert [float(score(head, one[None])[0]) for one in stored] == together.tolist()
    assert score(head, np.zeros((2, 192), np.int8)).tolist() == [0, 0]


@pytest.mark.parametrize("recording", [False, True])
def test_columns_are_scores_then_embedding(recording: bool) -> None:
    columns = OwnColumns(HEARING, DIMENSION, recording)
    embedding = np.linspace(-3, 3, DIMENSION).astype(np.float32)
    row = columns.of(embedding)
    stored = quantise(embedding)
    assert row[:2].tolist() == [float(score(head, stored[None])[0]) for head in HEADS[int(recording)]]
    assert row[2:].astype(np.int8).tolist() == stored.tolist()
    assert columns.of(None).tolist() == [0] * (2 + DIMENSION)


def test_single_model_has_no_own_columns() -> None:
    manifest = Fingerprint().manifest
    assert own_columns(manifest, HEARING, recording=False) is None
    assert widths(manifest, NOTHING) == (COUNT, 0)


@pytest.mark.parametrize("recording", [False, True])
def test_stored_embedding_matches_scores_for_any_chunking(recording: bool) -> None:
    samples = noise(7 * 16_000)

    def rows(*cuts: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        analysis = Analysis(Pair(), SESSIONS, 16_000, recording=recording, hearing=HEARING)
        packed = b"".join([analysis.feed(piece) for piece in np.split(samples, cuts)]) + analysis.finish()
        return np.frombuffer(packed, np.uint8).reshape(-1, COUNT + 2 + DIMENSION)

    whole = rows()
    assert np.array_equal(whole, rows(11, 16_000, 40_001))
    plain = Analysis(Pair(), SESSIONS, 16_000, recording=recording)
    tags = plain.feed(samples) + plain.finish()
    assert whole[:, :COUNT].tobytes() == tags
    for row in whole:
        stored = row[-DIMENSION:].view(np.int8)
        assert stored.any()
        for head, byte in zip(HEADS[int(recording)], row[COUNT : COUNT + 2], strict=True):
            assert (float(score(head, stored[None])[0]) >= 0.5) == (byte >= 128)


def test_sounds_apply_only_to_model_they_were_learnt_on() -> None:
    def sound(name: str, graph: str) -> OwnSound:
        return OwnSound(name, graph, bytes([1]) * 4, bytes([2]) * 4)

    own = sound("Kettle", GRAPH), sound("Lathe", "1" * 64)
    models = LoadedModels(SoundModel(Pair().manifest))
    model, hearing = models.hearing(None, own, KEEPS)
    assert hearing == Hearing(("Kettle",), bytes([1] * 4 + [2] * 4), KEEPS)
    assert parts_of(model) == (Pair().manifest.model_id, ("Kettle",))
    assert models.tags(model) == (*models.tags(Pair().manifest.model_id), "Kettle")
    assert {tag for tags in models.classes(model).values() for tag in tags} <= set(models.tags(model))
    assert models.classes(model)
    assert models.engine(model) is models.current
    alone = LoadedModels(SoundModel(Fingerprint().manifest))
    assert alone.hearing(None, own, KEEPS) == (Fingerprint().manifest.model_id, Hearing(choices=KEEPS))
