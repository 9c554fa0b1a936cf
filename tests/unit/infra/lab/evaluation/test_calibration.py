"""Operating points of bundled models, and of models for a user's recordings."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from infra import models
from infra.lab.evaluation import calibration, sound, user_recordings
from infra.lab.evaluation.calibration import CalibrationRule
from infra.lab.evaluation.recordings import Recording, SkippedRecording, Span
from infra.lab.evaluation.sound import ScoredRecordings
from streams.models import manifest
from streams.models.manifest import Graph, Heads, LogMel, Look, Output, SecondModel, SecondTag
from streams.models.protocol import Floats, LookEngine
from tests.unit.infra.lab.evaluation.engines import DEEP, LOUD, RATE, Levels, recording
from topics.errors import BadRequest

pytestmark = pytest.mark.slow


def scored(loud: list[float], deep: list[float], others: list[float]) -> ScoredRecordings:
    """Return three seconds of each level; levels of `others` have no tag."""
    given: list[Recording] = [recording(f"l{n}", [level] * 3, Span(LOUD)) for n, level in enumerate(loud)]
    given += [recording(f"d{n}", [-level] * 3, Span(DEEP)) for n, level in enumerate(deep)]
    given += [recording(f"o{n}", [level] * 3) for n, level in enumerate(others)]
    return sound.score_recordings(Levels(0.5, 0.5), given)


def test_points_separate_positives_from_negatives() -> None:
    found = calibration.calibrate_bundled(
        scored([0.8] * 20, [0.5] * 20, [0.4] * 2 + [-0.1] * 2), CalibrationRule(cost=0.3)
    )
    assert 0.4 < found.points[0] < 0.8
    assert 0.1 < found.points[1] < 0.5
    assert found.clips == (20, 20)


def test_tag_without_recordings_is_calibrated_on_negatives() -> None:
    quiet = calibration.calibrate_bundled(scored([0.6] * 5, [], [0.0] * 5))
    assert quiet.clips == (5, 0)
    assert quiet.points[1] == calibration.BLIND
    loud = calibration.calibrate_bundled(scored([0.6] * 5, [], [-0.5] * 5))
    assert loud.points[1] > 0.5


def test_calibration_changes_model_id() -> None:
    manifest = msgspec.structs.replace(Levels(0.5, 0.5).manifest, figures={"clip_recall": 0.5})
    made = calibration.with_points(manifest, calibration.Calibration((0.5, 0.6), (3, 0)))
    assert [(tag.point, tag.clips) for tag in made.tags] == [(0.5, 3), (0.6, 0)]
    assert made.model_id != manifest.model_id
    assert made.figures == {}


def test_two_stage_model_has_recording_and_stream_points() -> None:
    two = manifest.read(models.directory("yamnet_ced"))
    of_recordings, of_streams = (
        calibration.Calibration((at,) * len(two.tags), (3,) * len(two.tags)) for at in (0.4, 0.6)
    )
    made = calibration.with_points(two, of_recordings, of_streams)
    assert (set(made.points(recording=True)), set(made.points(recording=False))) == ({0.4}, {0.6})
    assert {tag.point for tag in made.tags} == {0.4}


BEFORE = Levels(0.9, 0.9)


def given(seed: int = 0) -> list[Recording]:
    """Return loud recordings that the model scores too low, and others that it scores slightly."""
    random = np.random.default_rng(seed)
    loud = [recording(f"l{n}", [random.uniform(0.5, 0.8)] * 4, Span(LOUD), label="Loud") for n in range(12)]
    return loud + [recording(f"o{n}", [random.uniform(-0.3, 0.3)] * 4, label="other") for n in range(12)]


class Two(Levels):
    """A second model that scores recordings at their level, and streams lower."""

    def __init__(self) -> None:
        super().__init__(0.5, 0.5)
        front = LogMel(RATE, 20, 4, 16, 10, 16, 0.0, 500.0, 1e-10)
        look = Look(20, 1000, Heads("heads.npy", "0" * 64), (0.5, 0.5))
        graph, tags = Graph("second.onnx", "0" * 64), (SecondTag(),) * 2
        second = SecondModel(
            "two", "1", "CC0-1.0", "here", graph, front, Output(), 2, tags, 0.5, 0.0, stream=look, recording=look
        )
        self.manifest = msgspec.structs.replace(self.manifest, second=second)

    @property
    def second(self) -> LookEngine:
        return self

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        return np.full(2, 1.0 if recording else 0.6, np.float32), np.zeros(1, np.float32)

    def combine(self, scores: Floats, look: Callable[[], Floats]) -> Floats:
        return scores * look()


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


@pytest.mark.parametrize("wanted", [0.5, 2.0, 5.0])
def test_calibration_keeps_false_event_budget(wanted: float) -> None:
    outcome = user_recordings.calibrate(Levels(0.1, 0.1), given(), [], wanted)
    assert outcome.report.lines[1].plain.false_events_per_minute <= wanted


def test_larger_false_event_budget_increases_recall() -> None:
    random = np.random.default_rng(3)
    mixed = [recording(f"l{n}", [random.uniform(0.1, 0.8)] * 4, Span(LOUD)) for n in range(20)]
    mixed += [recording(f"o{n}", [random.uniform(0.1, 0.6)] * 4) for n in range(20)]
    found = [user_recordings.calibrate(BEFORE, mixed, [], wanted).report.lines[1].plain for wanted in (0.4, 4.0)]
    assert found[0].clip_recall < found[1].clip_recall


def test_too_few_recordings_are_rejected() -> None:
    with pytest.raises(BadRequest):
        user_recordings.calibrate(BEFORE, given()[:1], [], None)
    with pytest.raises(BadRequest, match="no recording has a tag of the model"):
        user_recordings.calibrate(BEFORE, [recording("a", [0.1] * 3), recording("b", [0.1] * 3, Span(DEEP))], [], None)
