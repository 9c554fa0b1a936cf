"""The second model of the bundle: its graph is the crate's, its heads and points are learnt from recordings."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from infra import models
from infra.lab.converters import convert_ced
from infra.lab.evaluation import calibration
from infra.lab.evaluation.labels import LABELS
from infra.lab.evaluation.metrics import Truth
from infra.lab.evaluation.recordings import Recording, Span
from infra.lab.evaluation.sound import ScoredRecordings, point_at, score_recordings
from infra.lab.training import second_heads
from infra.lab.training.attribution import notice
from infra.lab.training.clips import read_clips
from infra.lab.training.heard import HeardRecordings, hear
from streams.models import heads, manifest, runtime
from streams.models.manifest import SecondTag
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine
from tests.recordings import SPEECH, TRAINING, clips
from tests.unit.infra.lab.evaluation.engines import Levels

pytestmark = pytest.mark.slow

YAMNET, BUNDLE = (models.directory(name) for name in ("yamnet", "yamnet_ced"))
BOTH = manifest.read(BUNDLE)
assert BOTH.second is not None
SECOND = BOTH.second
BANDS, SIZE = 64, convert_ced.EMBEDDING


def crate() -> onnx.ModelProto:
    """A graph with the crate's names and one layer; its frames are the samples in order, one band each."""
    draw = np.random.default_rng(0)
    constants: dict[str, npt.NDArray[np.generic]] = {
        "patch_q": draw.integers(-127, 128, (SIZE, 1, 16, 16)).astype(np.int8),
        "patch_s": np.array(1e-4, np.float32),
        "patch_z": np.array(0, np.int8),
        "mix_q": draw.integers(-127, 128, (SIZE, SIZE)).astype(np.int8),
        "mix_s": np.array(1e-3, np.float32),
        "mix_z": np.array(3, np.int8),
        "times": draw.normal(0, 1, (1, SIZE, 1, 63)).astype(np.float32),
        "last": draw.normal(0, 0.2, (convert_ced.CLASSES, SIZE)).astype(np.float32),
        "bias": draw.normal(0, 1, convert_ced.CLASSES).astype(np.float32),
        **{f"i{number}": np.array([number]) for number in (0, 1, 3, 4, 1024, SIZE)},
        "as_frames": np.array([0, BANDS, -1]),
    }

    def node(kind: str, given: str, output: str, **attributes: object) -> NodeProto:
        made = helper.make_node(kind, given.split(), [output])
        made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        return made

    nodes = [
        node("Shape", "waveform", "val_0", start=0, end=1),
        node("Shape", "waveform", "samples", start=1, end=2),
        node("Reshape", "waveform as_frames", "mul_53"),
        node("Unsqueeze", "mul_53 i1", "image"),
        node("DequantizeLinear", "patch_q patch_s patch_z", "patch"),
        node("DequantizeLinear", "mix_q mix_s mix_z", "mix"),
        node("Conv", "image patch", "conv2d", strides=[16, 16]),
        node("Div", "samples i1024", "val_74"),
        node("Mul", "val_74 i4", "val_83"),
        node("Slice", "times i0 val_74 i3", "here"),
        node("Add", "conv2d here", "placed"),
        node("Concat", "val_0 i192 val_83", "shape", axis=0),
        node("Reshape", "placed shape", "flat"),
        node("Transpose", "flat", "tokens", perm=[0, 2, 1]),
        node("MatMul", "tokens mix", "mixed"),
        node("ReduceMean", "mixed i1", "mean", keepdims=0),
        node("Gemm", "mean last bias", "sums", transB=1),
        node("Sigmoid", "sums", "logits"),
    ]
    outputs = [("logits", convert_ced.CLASSES), ("mean", SIZE)]
    graph = helper.make_graph(
        nodes,
        "crate",
        [helper.make_tensor_value_info("waveform", TensorProto.FLOAT, ("n", "samples"))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", size)) for name, size in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def run(graph: bytes, outputs: tuple[str, ...], given: Floats) -> list[Floats]:
    options = onnxruntime.SessionOptions()
    # Otherwise the runtime converts the activations of the crate's int8 weights to int8 too.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    found: list[Floats] = session.run(list(outputs), {session.get_inputs()[0].name: given})
    return found


@pytest.mark.parametrize("shape", [(1, BANDS, 192), (2, BANDS, 496), (1, BANDS, 1008)])
def test_rebuilt_graph_matches_crate(shape: tuple[int, ...]) -> None:
    given = np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)
    expected = run(crate().SerializeToString(), ("logits", "mean"), given.reshape(shape[0], -1))
    rebuilt = convert_ced.rebuild(crate())
    for found, wanted in zip(run(rebuilt.SerializeToString(), convert_ced.OUTPUTS, given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    for one in range(shape[0]):
        rows = run(convert_ced.quantise(rebuilt), convert_ced.OUTPUTS, given[one : one + 1])
        np.testing.assert_allclose(rows[0][0], expected[0][one], atol=0.03)


def test_quantisation_is_deterministic_with_seven_bits() -> None:
    one, two = (convert_ced.quantise(convert_ced.rebuild(crate())) for _ in range(2))
    assert one == two
    for graph in (one, (BUNDLE / SECOND.graph.file).read_bytes()):
        kept = [numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(graph).graph.initializer]
        integers = [tensor for tensor in kept if tensor.dtype == np.int8 and tensor.ndim == 2]
        assert len(integers) >= 2
        assert max(int(np.abs(tensor.astype(np.int16)).max()) for tensor in integers) == 64


def test_wrong_source_file_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.onnx").write_bytes(crate().SerializeToString())
    assert convert_ced.main([str(tmp_path / "tiny.onnx"), str(tmp_path / "out.onnx")]) == 2
    assert "not CED-tiny of the crate soundevents 0.5.0" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_bundle_contains_shipped_first_model() -> None:
    first = manifest.read(YAMNET)
    assert first.heads is not None
    for file in (first.graph.file, first.heads.file):
        assert (BUNDLE / file).read_bytes() == (YAMNET / file).read_bytes()
    of_second = (SECOND.graph, SECOND.stream.heads, SECOND.recording.heads)
    assert sum((BUNDLE / one.file).stat().st_size for one in of_second) <= 7_500_000
    assert [(tag.name, tag.classes, tag.head, tag.clips) for tag in BOTH.tags] == [
        (tag.name, tag.classes, tag.head, tag.clips) for tag in first.tags
    ]
    text = (BUNDLE / "ATTRIBUTION").read_text(encoding="utf-8")
    assert text == notice(read_clips(TRAINING), second_heads.CREDIT)
    for whose in ("YAMNet", "CED-tiny", "Apache License"):
        assert whose in (BUNDLE / "NOTICE").read_text(encoding="utf-8")


def test_bundled_second_model_matches_trainer() -> None:
    tags = second_heads.second_tags(len(BOTH.tags), [tag.clips for tag in BOTH.tags])
    graph = (BUNDLE / SECOND.graph.file).read_bytes()
    made = second_heads.second_model(graph, tags)
    levels = {point_at(int(level)) for level in calibration.GRID}
    for shipped, before in ((SECOND.stream, made.stream), (SECOND.recording, made.recording)):
        assert set(shipped.points) <= levels
        assert heads.read(BUNDLE, shipped.heads).shape == (sum(tag.head is not None for tag in tags), SIZE + 1)
        assert msgspec.structs.replace(before, heads=shipped.heads, points=shipped.points) == shipped
    assert BOTH.points(recording=True) == tuple(tag.point for tag in BOTH.tags)
    assert SECOND.gate in second_heads.GATES
    chosen = {"gate": SECOND.gate, "stream": SECOND.stream, "recording": SECOND.recording}
    assert msgspec.structs.replace(made, **chosen) == SECOND
    # On held-out halves, both models find more and report less falsely than the first model alone.
    alone = manifest.read(YAMNET).figures
    assert BOTH.figures["clip_recall"] >= 0.93 > alone["clip_recall"]
    assert BOTH.figures["stream_clip_recall"] >= 0.91
    for name in ("false_events_per_minute", "stream_false_events_per_minute"):
        assert BOTH.figures[name] <= 3.0 < alone["false_events_per_minute"]
    for name in ("scenes_sound_recall", "stream_scenes_sound_recall"):
        assert BOTH.figures[name] >= 0.68 > alone["scenes_sound_recall"]
    for name in ("speech_false_windows", "stream_speech_false_events_per_minute"):
        assert 120 * BOTH.figures["speech_false_windows"] <= 0.16, name


def given() -> list[Recording]:
    """Return a dog, a siren, and a reader."""
    return [
        Recording("dog", "dog", (Span(LABELS["dog"]),), clips("dog")[0], "1"),
        Recording("rooster", "rooster", (Span(LABELS["rooster"]),), clips("rooster")[0], "2"),
        Recording("reader", "speech", (Span(LABELS["speech"]),), sorted(SPEECH.glob("*.ogg"))[0], "3"),
    ]


@pytest.mark.parametrize("recording", [False, True])
def test_training_scores_match_service(recording: bool) -> None:
    session = runtime.open_session(BUNDLE / SECOND.graph.file, SECOND.graph.sha256)
    heard = hear(OnnxSoundEngine(YAMNET), session, SECOND, given(), recording)
    logits = second_heads.logits_of(heard, SECOND.tags, heads.read(BUNDLE, SECOND.look(recording).heads))
    combined = heard.at(logits, SECOND.weight, SECOND.gate)
    served = score_recordings(OnnxSoundEngine(BUNDLE), given(), recording=recording)
    # Matrix products add in another order.
    assert np.abs(combined.stored.astype(int) - served.stored).max() <= 1
    assert np.mean(combined.stored != served.stored) < 0.01
    assert served.reported.any(axis=1).mean() > 0.5
    assert not (served.reported & ~served.truth.allowed).any()


def heard_by_hand(labels: list[str], embeddings: Floats) -> HeardRecordings:
    """Return recordings of one look and two windows; the tag Loud is true on `loud`, and no fault on `maybe`."""
    count = len(labels)
    recording = np.repeat(np.arange(count), 2)
    windows = np.array(labels)[recording]
    true, allowed = np.zeros((2 * count, 2), bool), np.zeros((2 * count, 2), bool)
    true[:, 0] = windows == "loud"
    allowed[:, 0] = np.isin(windows, ("loud", "maybe"))
    scored = ScoredRecordings(
        Levels(0.5, 0.5).manifest,
        tuple(Recording(f"r{n}", label, (), Path("none"), f"s{n}") for n, label in enumerate(labels)),
        (),
        np.zeros((2 * count, 2), np.uint8),
        Truth(recording, true, allowed, np.ones(2 * count, bool), count / 60),
    )
    classes = np.full((count, 2), 0.5, np.float32)
    return HeardRecordings(scored, np.full((2 * count, 2), 0.1, np.float32), recording, classes, embeddings)


TAGS = (SecondTag((0,), 0), SecondTag((1,), 1))


def test_heads_separate_tag_from_negatives() -> None:
    labels = ["loud", "other", "maybe", "speech"] * 8
    embeddings = np.random.default_rng(0).normal(0, 0.1, (len(labels), 3)).astype(np.float32)
    embeddings[:, 0] += [label in ("loud", "maybe") for label in labels]
    heard = heard_by_hand(labels, embeddings)
    rows = second_heads.learn(heard, TAGS, np.ones(len(labels), bool))
    logits = second_heads.logits_of(heard, TAGS, rows)
    loud = np.array([label in ("loud", "maybe") for label in labels])
    assert logits[loud, 0].min() > 0 > logits[~loud, 0].max()
    # No recording has the other tag: its class alone scores it, at one half.
    assert np.isnan(rows[1]).all()
    np.testing.assert_allclose(logits[:, 1], 0.0, atol=1e-6)


def test_held_out_heads_are_not_trained_on_scored_recordings() -> None:
    """Each recording is identified by its own number, so only a head that learnt from it can recognise it."""
    labels = ["loud"] * 24 + ["other"] * 24 + ["speech"] * 24
    embeddings = np.eye(len(labels)) + np.random.default_rng(0).normal(0, 0.05, (len(labels), len(labels)))
    heard = heard_by_hand(labels, embeddings.astype(np.float32))

    def margin(logits: Floats) -> float:
        return float(logits[:24, 0].mean() - logits[24:, 0].mean())

    known = second_heads.logits_of(heard, TAGS, second_heads.learn(heard, TAGS, np.ones(len(labels), bool)))
    assert margin(known) > 5 * abs(margin(second_heads.held_out_logits(heard, TAGS)))


def way(last: float) -> Callable[[float], dict[str, float]]:
    """Return figures of a way of looking that finds everything up to a gate."""
    return lambda gate: {"clip_recall": 0.9, "scenes_sound_recall": 0.7 if gate <= last else 0.69}


def test_gate_is_lowest_lossless_value() -> None:
    assert second_heads.choose_gate([way(0.05), way(0.03)]) == 0.03
    assert second_heads.choose_gate([way(1.0), way(0.0)]) == 0.0


def test_window_below_gate_gets_lowest_second_logit() -> None:
    heard = heard_by_hand(["loud"], np.zeros((1, 3), np.float32))
    passed, closed = (heard.at(np.zeros((1, 2), np.float32), 0.5, gate).levels for gate in (0.05, 0.2))
    # Half of the logit of 0.1, plus half of that of 0.0001, in steps of 0.07.
    assert passed.tolist() == [[-16, -16]] * 2
    assert closed.tolist() == [[-82, -82]] * 2
