"""ONNX models: tags from classes, the same bits from any thread, faults in one line, and scores as stored bytes."""

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from onnx import TensorProto
from onnxruntime import InferenceSession

from infra import models as bundled
from streams.audio.analysis import Analysis, score_alone
from streams.audio.decode import DecodedAudio, decode_chunk
from streams.models.manifest import Graph, Heads, LogMel, Manifest, Output, Waveform
from streams.models.packing import pack
from streams.models.protocol import Floats, SoundEngine
from streams.models.sound_engine import OnnxSoundEngine
from tests import naive
from tests.recordings import clips
from tests.unit.streams.models import models
from topics.errors import EngineError
from topics.geometry import SENSE, SESSIONS, Geometry
from topics.media import parse
from topics.scores import STEP, ZERO, probability, threshold


def patch(*classes: float) -> Floats:
    return np.array([*classes, *[0.0] * (models.PATCH - len(classes))], np.float32)


def test_tag_score_is_maximum_of_its_classes(tmp_path: Path) -> None:
    engine: SoundEngine = OnnxSoundEngine(models.write(tmp_path))
    scores = engine.scores(patch(0.125, 0.25, 0.5, 0.75))
    assert (scores.dtype.name, scores.tolist()) == ("float32", [0.125, 0.75])
    assert engine.scores(patch(0.5, 0.25, 0.5, 0.0)).tolist() == [0.5, 0.5]


def test_threads_share_engine(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path))
    values = [n / 256 for n in range(256)]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda value: engine.scores(patch(value))[0], values))
    assert got == values


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 9])
def test_batched_patches_score_as_single_ones(tmp_path: Path, count: int) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path))
    patches = [patch(n / 16, 0.25, 0.5, 0.75 - n / 16) for n in range(count)]
    together = engine.scores_of(patches)
    assert [scores.tolist() for scores in together] == [engine.scores(one).tolist() for one in patches]


@pytest.mark.parametrize("model", ["yamnet", "sed_mini"])
def test_bundled_models_run_in_batches(model: str) -> None:
    engine = OnnxSoundEngine(bundled.directory(model))
    patches = [*np.random.default_rng(1).normal(-2, 3, (7, 96, 64)).astype(np.float32)]
    alone = [engine.scores(one).tobytes() for one in patches]
    with mock.patch.object(InferenceSession, "run", autospec=True, side_effect=InferenceSession.run) as run:
        together = engine.scores_of(patches)
    sizes = [len(next(iter(called.args[2].values()))) for called in run.call_args_list]
    assert [scores.tobytes() for scores in together] == alone
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
def test_unbatched_models_get_one_patch_at_a_time(tmp_path: Path, data: bytes) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path, data=data))
    patches = [patch(n / 16, 0.25, 0.5, 0.75) for n in range(6)]
    assert [scores.tolist() for scores in engine.scores_of(patches)] == [engine.scores(one).tolist() for one in patches]


def test_patch_of_wrong_shape_is_rejected(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path))
    with pytest.raises(EngineError, match=r"^tiny@\w{8}-\w{6}: cannot reshape [^\n]*$"):
        engine.scores(np.zeros(models.PATCH - 1, np.float32))


def described(**change: object) -> Manifest:
    return msgspec.structs.replace(models.MANIFEST, **change)


@pytest.mark.parametrize(
    ("manifest", "data", "fault"),
    [
        (described(input=Waveform(1000, 799)), None, "takes .*800.*, expected .*799"),
        (described(input=Waveform(1000, 801)), None, "takes .*800.*, expected .*801"),
        (described(output=Output(scores="clipwise")), None, "has no output clipwise, only scores"),
        *(
            (described(), models.graph(axes=axes), r"takes tensor\(float\) \[.*\], expected .* \[1, 800\]$")
            for axes in ((2, models.PATCH), ("n", 2, models.PATCH), ("n", 1, 1, models.PATCH), ())
        ),
        (described(), models.graph(kind=TensorProto.DOUBLE), r"takes tensor\(double\) "),
        (described(), models.graph(outputs=5), "gives 5 scores, but the manifest has 4 classes"),
        (described(), models.graph(operator="Nonsense"), r"[^\n]+$"),
        (described(), b"no graph", r"[^\n]+$"),
    ],
)
def test_mismatched_graphs_are_rejected(tmp_path: Path, manifest: Manifest, data: bytes, fault: str) -> None:
    with pytest.raises(EngineError, match=rf"model\.onnx: {fault}"):
        OnnxSoundEngine(models.write(tmp_path, manifest, data))


@pytest.mark.parametrize(
    "axes", [(1, 800), (None, None), ("batch", "time"), (800,), ("time",), ("n", 1, 800), (1, 1, "time")]
)
def test_waveform_is_shaped_for_graph(tmp_path: Path, axes: tuple[int | str | None, ...]) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path, data=models.graph(axes=axes, given=[None, None])))
    assert engine.scores(patch(0.125, 0.25, 0.5, 0.75)).tolist() == [0.125, 0.75]


@pytest.mark.parametrize("axes", [("n", 50, 8), ("n", 1, "frames", 8), (1, 8, 50), ("n", 1, 8, "frames")])
def test_log_mel_is_shaped_for_graph(tmp_path: Path, axes: tuple[int | str, ...]) -> None:
    layout: Literal["frames-bands", "bands-frames"] = "frames-bands" if axes[-1] == 8 else "bands-frames"
    front = LogMel(1000, 50, 8, 20, 10, 32, 0.0, 500.0, 1e-3, layout=layout)
    engine = OnnxSoundEngine(models.write(tmp_path, described(input=front), models.graph(axes=axes)))
    frames = np.zeros((50, 8), np.float32)
    frames[0, 1], frames[1, 0] = 0.25, 0.75
    assert engine.scores(frames)[1] == (0.25 if layout == "frames-bands" else 0.75)
    other = described(input=msgspec.structs.replace(front, bands=9))
    with pytest.raises(EngineError, match=r"model.onnx: takes .*8.*, expected .*9"):
        OnnxSoundEngine(models.write(tmp_path, other, models.graph(axes=axes)))


def test_logits_become_probabilities(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(models.write(tmp_path, described(output=Output(activation="sigmoid"))))
    expected = 1 / (1 + np.exp(-np.array([-1.0, 3.0])))
    assert np.allclose(engine.scores(patch(-1.0, 3.0, -200.0, 2.0)), expected, atol=1e-7)


def test_heads_score_tags_from_embedding(tmp_path: Path) -> None:
    engine = OnnxSoundEngine(with_heads(tmp_path, np.array([[0, 0, 0, 0, -9], [2, 0, 0, 0, 1]], np.float32)))
    # The tag's class gives 0, its head 2 x 0.5 + 1.
    assert np.allclose(engine.scores(patch(0.5)), [0.5, 1 / (1 + np.exp(-2.0))])
    with pytest.raises(EngineError, match="gives no embedding"):
        OnnxSoundEngine(models.write(tmp_path)).embed(patch())
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
def test_invalid_heads_are_rejected(tmp_path: Path, weights: Floats, fault: str) -> None:
    with pytest.raises(EngineError, match=fault):
        OnnxSoundEngine(with_heads(tmp_path, weights))


def with_heads(directory: Path, weights: Floats) -> Path:
    """Write a model whose second tag has head 1 besides its classes."""
    np.save(directory / "heads.npy", weights)
    sha256 = hashlib.sha256((directory / "heads.npy").read_bytes()).hexdigest()
    tags = (models.MANIFEST.tags[0], msgspec.structs.replace(models.MANIFEST.tags[1], head=1))
    known = described(tags=tags, heads=Heads("heads.npy", sha256), output=Output(embedding="scores"))
    return models.write(directory, known)


def test_graph_file_must_match_manifest(tmp_path: Path) -> None:
    path = models.write(tmp_path) / "model.onnx"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(EngineError, match=r"model.onnx: not the file .* SHA-256"):
        OnnxSoundEngine(tmp_path)
    path.unlink()
    with pytest.raises(EngineError, match=r"model.onnx: No such file"):
        OnnxSoundEngine(tmp_path)
    named = models.write(tmp_path, described(graph=Graph("other.onnx", "")))
    assert OnnxSoundEngine(named).manifest.graph.file == "other.onnx"


# --- packing: the formula of the stored byte, and exact thresholds --------------------------------------------------

scores = st.floats(0, 1, width=32)
points = st.floats(0.01, 0.99)


def one(score: float, point: float) -> int:
    return pack(np.array([[score]], np.float32), [point])[0]


@given(rows=st.lists(st.tuples(scores, points), min_size=1, max_size=20))
def test_stored_byte_equals_formula(rows: list[tuple[float, float]]) -> None:
    got = pack(np.array([[score for score, _ in rows]], np.float32), [point for _, point in rows])
    for stored, (score, point) in zip(got, rows, strict=True):
        # At the edge of a step the last bit of a logarithm may decide.
        assert abs(stored - naive.stored(score, point)) <= (0 if off_edge(score, point) else 1)


def off_edge(score: float, point: float) -> bool:
    inside = min(max(score, 1e-12), 1 - 1e-12)
    steps = (math.log(inside / (1 - inside)) - math.log(point / (1 - point))) / STEP
    return abs(steps - round(steps)) > 1e-9


@given(score=scores, point=points, nudge=st.integers(-3, 3))
@example(score=0.5, point=0.5, nudge=0)
@example(score=0.0, point=0.01, nudge=0)
@example(score=1.0, point=0.99, nudge=0)
def test_scores_are_reported_exactly_from_point(score: float, point: float, nudge: int) -> None:
    # Scores a few floats beside the point, or the drawn one.
    for value in (score, float(np.float32(point) + nudge * np.spacing(np.float32(point)))):
        reported = one(value, point) >= threshold(0)
        assert reported == (value >= point)
        assert reported == (probability(one(value, point)) >= 0.5)


@given(score=scores, point=points, sensitivity=st.sampled_from([-2, -1, 1, 2]))
def test_sensitivity_step_is_seven_tenths_of_a_logit(score: float, point: float, sensitivity: int) -> None:
    assume(0 < score < 1)
    margin = math.log(score / (1 - score)) - math.log(point / (1 - point)) - 0.7 * sensitivity
    assume(abs(margin) > 1e-9)
    assert (one(score, point) >= threshold(sensitivity)) == (margin > 0)


@given(first=scores, second=scores, point=points)
def test_packing_keeps_order_of_scores(first: float, second: float, point: float) -> None:
    assert (one(first, point) <= one(second, point)) == (first <= second) or one(first, point) == one(second, point)


def test_nan_scores_are_rejected() -> None:
    with pytest.raises(EngineError, match="not a number"):
        pack(np.array([[0.5, np.nan]], np.float32), [0.5, 0.5])


# --- the bundled model: consistent parts, no reports in silence, right tags ------------------------------------------

YAMNET = bundled.directory(bundled.YAMNET)
#: The tags of the ten most frequent labels of the recordings.
LABELS = {
    "dog": "Dog_bark",
    "rooster": "Rooster_crow",
    "rain": "Rain",
    "sea_waves": "Sea_waves",
    "crackling_fire": "Fire_crackle",
    "crying_baby": "Baby_cry",
    "sneezing": "Sneeze",
    "clock_tick": "Clock_tick",
    "helicopter": "Helicopter",
    "chainsaw": "Chainsaw",
}


@cache
def engine() -> OnnxSoundEngine:
    return OnnxSoundEngine(YAMNET)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("length", [1, 400, 16_000, 40_000])
@pytest.mark.parametrize("geometry", [SESSIONS, SENSE])
def test_silence_has_no_events(rate: int, length: int, geometry: Geometry) -> None:
    analysis = Analysis(engine(), geometry, rate)
    silence = np.zeros(length, np.float32)
    packed = analysis.feed(silence) + analysis.finish()
    assert len(packed) >= 118
    assert max(packed) < ZERO


def test_loudest_sound_has_scores() -> None:
    square = np.where(np.arange(16_000) % 40 < 20, np.float32(2**31), np.float32(-(2**31)))
    assert len(score_alone(engine(), SESSIONS, DecodedAudio(16_000, square))) == 118


@pytest.mark.slow
def test_ten_sounds_are_recognised() -> None:
    tags = [tag.name for tag in engine().manifest.tags]
    columns = [tags.index(name) for name in LABELS.values()]
    labelled = [(path, label) for label in LABELS for path in clips(label)]
    assert len(labelled) == 40
    right = 0
    for path, label in labelled:
        pcm = decode_chunk(path.read_bytes(), parse("audio/ogg"))
        analysis = Analysis(engine(), SESSIONS, pcm.rate)
        packed = analysis.feed(pcm.samples) + analysis.finish()
        margins = np.frombuffer(packed, np.uint8).reshape(-1, len(tags))[:, columns]
        probabilities = 1 / (1 + np.exp(-0.07 * (margins.astype(np.float64) - ZERO)))
        right += list(LABELS)[int(probabilities.mean(axis=0).argmax())] == label
    assert right / len(labelled) > 0.9
