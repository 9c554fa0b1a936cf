"""The second model of the bundle: its graph, its heads and its points are as trained."""

import msgspec
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from infra import models
from infra.lab.converters import convert_ced
from infra.lab.evaluation import calibration
from infra.lab.evaluation.labels import LABELS
from infra.lab.evaluation.recordings import Recording, Span
from infra.lab.evaluation.sound import point_at, score_recordings
from infra.lab.training import second_heads
from infra.lab.training.attribution import notice
from infra.lab.training.clips import read_clips
from infra.lab.training.heard import hear
from streams.models import heads, manifest, runtime
from streams.models.sound_engine import OnnxSoundEngine
from tests.recordings import SPEECH, TRAINING, clips

pytestmark = pytest.mark.slow

YAMNET, BUNDLE = (models.directory(name) for name in ("yamnet", "yamnet_ced"))
BOTH = manifest.read(BUNDLE)
assert BOTH.second is not None
SECOND = BOTH.second
BANDS, SIZE = 64, convert_ced.EMBEDDING


def test_bundled_graph_is_quantised_to_seven_bits() -> None:
    kept = [numpy_helper.to_array(tensor) for tensor in onnx.load(BUNDLE / SECOND.graph.file).graph.initializer]
    integers = [tensor for tensor in kept if tensor.dtype == np.int8 and tensor.ndim == 2]
    assert len(integers) >= 2
    assert max(int(np.abs(tensor.astype(np.int16)).max()) for tensor in integers) == 64


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
    logits = second_heads.logits_of(heard, SECOND.tags, heads.read(BUNDLE, SECOND.context(recording).heads))
    combined = heard.at(logits, SECOND.weight, SECOND.gate)
    served = score_recordings(OnnxSoundEngine(BUNDLE), given(), recording=recording)
    # No model of the service hears digital silence of a stream.
    is_heard = served.stored.any(axis=1)
    assert is_heard.mean() > (0.99 if recording else 0.5)
    got, wanted = combined.stored[is_heard], served.stored[is_heard]
    # Matrix products add in another order.
    assert np.abs(got.astype(int) - wanted).max() <= 1
    assert np.mean(got != wanted) < 0.01
    assert served.reported.any(axis=1).mean() > 0.5
    assert not (served.reported & ~served.truth.allowed).any()
