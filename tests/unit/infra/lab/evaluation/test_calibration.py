"""Operating points of bundled models, and of models for a user's recordings."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from infra.lab.evaluation import user_recordings
from infra.lab.evaluation.recordings import Recording, SkippedRecording, Span
from streams.models.manifest import Context, Graph, Heads, LogMel, Output, SecondModel, SecondTag
from streams.models.protocol import ContextEngine, Floats
from tests.unit.infra.lab.evaluation.engines import DEEP, LOUD, RATE, Levels, recording
from topics.errors import BadRequest

pytestmark = pytest.mark.slow


BEFORE = Levels(0.9, 0.9)


def given() -> list[Recording]:
    """Return loud recordings that the model scores too low, and others that it scores slightly."""
    random = np.random.default_rng(0)
    loud = [recording(f"l{n}", [random.uniform(0.5, 0.8)] * 4, Span(LOUD), label="Loud") for n in range(12)]
    return loud + [recording(f"o{n}", [random.uniform(-0.3, 0.3)] * 4, label="other") for n in range(12)]


class Two(Levels):
    """A second model that scores recordings at their level, and streams lower."""

    def __init__(self) -> None:
        super().__init__(0.5, 0.5)
        front = LogMel(RATE, 20, 4, 16, 10, 16, 0.0, 500.0, 1e-10)
        context = Context(20, 1000, Heads("heads.npy", "0" * 64), (0.5, 0.5))
        graph, tags = Graph("second.onnx", "0" * 64), (SecondTag(),) * 2
        second = SecondModel(
            "two", "1", "CC0-1.0", "here", graph, front, Output(), 2, tags, 0.5, 0.0, stream=context, recording=context
        )
        self.manifest = msgspec.structs.replace(self.manifest, second=second)

    @property
    def second(self) -> ContextEngine:
        return self

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        return np.full(2, 1.0 if recording else 0.6, np.float32), np.zeros(1, np.float32)

    def combine(self, scores: Floats, context: Callable[[], Floats]) -> Floats:
        return scores * context()


def test_streams_and_recordings_get_separate_points() -> None:
    made = user_recordings.calibrate(Two(), given(), [], None).manifest
    assert 0.2 < made.points(recording=False)[0] < made.points(recording=True)[0] < 0.5


def test_calibration_finds_missed_recordings() -> None:
    outcome = user_recordings.calibrate(BEFORE, given(), [SkippedRecording("x", "unknown label")], None)
    before, after, crossed = (line.plain for line in outcome.report.lines)
    assert before.clip_recall == 0.0
    assert after.clip_recall >= crossed.clip_recall > 0.8
    loud, deep = outcome.manifest.tags
    assert 0.3 < loud.point < 0.6
    assert loud.clips == 12
    assert (deep.point, deep.clips) == (0.9, 0)  # no recordings, and no false events
    assert outcome.manifest.model_id != BEFORE.manifest.model_id
    assert outcome.report.skipped == (SkippedRecording("x", "unknown label"),)


def test_false_event_budget_is_kept_and_used() -> None:
    random = np.random.default_rng(3)
    mixed = [recording(f"l{n}", [random.uniform(0.1, 0.8)] * 4, Span(LOUD)) for n in range(20)]
    mixed += [recording(f"o{n}", [random.uniform(0.1, 0.6)] * 4) for n in range(20)]
    found = [user_recordings.calibrate(BEFORE, mixed, [], wanted).report.lines[1].plain for wanted in (0.4, 4.0)]
    assert found[0].false_events_per_minute <= 0.4 < found[1].false_events_per_minute <= 4.0
    assert found[0].clip_recall < found[1].clip_recall


def test_too_few_recordings_are_rejected() -> None:
    with pytest.raises(BadRequest):
        user_recordings.calibrate(BEFORE, given()[:1], [], None)
    with pytest.raises(BadRequest, match="no recording has a tag of the model"):
        user_recordings.calibrate(BEFORE, [recording("a", [0.1] * 3), recording("b", [0.1] * 3, Span(DEEP))], [], None)
